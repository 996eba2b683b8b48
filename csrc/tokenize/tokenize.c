/* A run over texts: literals first, what lies between them is split, pieces are looked up. */
#include "literals.h"

/* Whether bytes are UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static bool valid_utf8(const uint8_t *p, size_t size) {
    const uint8_t *end = p + size;
    while (p < end) {
        if (end - p >= 8 && !(load64(p) & 0x8080808080808080ull)) {
            p += 8;
            continue;
        }
        size_t n = 1;
        if (*p >= 0x80) {
            if (*p < 0xC2 || *p > 0xF4) return false;
            n = *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : 4;
            if ((size_t)(end - p) < n) return false;
            for (size_t i = 1; i < n; i++)
                if ((p[i] & 0xC0) != 0x80) return false;
            uint32_t c = decode(p, &n);
            if ((n == 3 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) ||
                (n == 4 && (c < 0x10000 || c >= CODE_POINTS)))
                return false;
        }
        p += n;
    }
    return true;
}

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* SentencePiece writes a space as U+2581, and one before every text. */
static lookup_status split_escaped(run *r, const uint8_t *p, size_t size) {
    size_t spaces = 1;
    for (size_t i = 0; i < size; i++) spaces += p[i] == ' ';
    uint8_t *text = lookup_alloc(size + 2 * spaces + 1 + SLACK, 1);
    CHECK(text, LOOKUP_E_MEMORY);
    uint8_t *o = text;
    if (r->t->space_prefix) memcpy(o, "\xE2\x96\x81", 3), o += 3;
    for (size_t i = 0; i < size; i++)
        if (p[i] == ' ') memcpy(o, "\xE2\x96\x81", 3), o += 3;
        else *o++ = p[i];
    lookup_tokenize_split(r, text, o);
    lookup_tokenize_flush(r);
    lookup_free(text);
    return r->status;
}

static lookup_status split_plain(run *r, const uint8_t *p, size_t size) {
    if (size == 0) return LOOKUP_OK;
    if (r->t->scheme != BYTE_LEVEL) return split_escaped(r, p, size);
    lookup_tokenize_split(r, p, p + size);
    lookup_tokenize_flush(r);
    return r->status;
}

static lookup_status one_text(run *r, const lookup_literals *l, const uint8_t *p, size_t size,
                              found_list *list) {
    CHECK(valid_utf8(p, size), LOOKUP_E_ARGUMENT);
    size_t at = 0;
    if (l) TRY(lookup_tokenize_find_literals(l, p, size, list));
    for (size_t i = 0; l && i < list->count; i++) {
        const found_literal *f = &list->at[i];
        size_t limit = i + 1 < list->count ? list->at[i + 1].from : size, end = f->from;
        while (f->strip & 1 && end > at && is_space(p[end - 1])) end--;
        TRY(split_plain(r, p + at, end - at));
        *r->out++ = f->id;
        at = f->to;
        while (f->strip & 2 && at < limit && is_space(p[at])) at++;
    }
    return split_plain(r, p + at, size - at);
}

/* A byte gives one id at most, a space before a text one more; without a token for the space three
 * each. */
uint64_t lookup_tokenize_room(const lookup_tokenizer *t, uint64_t bytes) {
    uint64_t most = t->scheme == BYTE_LEVEL ? 1 : lookup_tokenize_token_of(t, (const uint8_t *)"\xE2\x96\x81", 3) >= 0 ? 2 : 6;
    return most * bytes + SLACK;
}

lookup_status lookup_tokenize(const lookup_tokenizer *t, const lookup_literals *literals,
                              lookup_memo *memo, const uint8_t *text, const uint64_t *ends, size_t n,
                              int32_t *ids, size_t room, int64_t *counts) {
    CHECK(t && memo && (n == 0 || room >= lookup_tokenize_room(t, ends[n - 1])), LOOKUP_E_ARGUMENT);
    run r = {.t = t, .memo = memo, .out = ids};
    found_list list = {0};
    lookup_status status = LOOKUP_OK;
    uint64_t from = 0;
    for (size_t i = 0; i < n && status == LOOKUP_OK; from = ends[i++]) {
        const int32_t *before = r.out;
        status = one_text(&r, literals, text + from, (size_t)(ends[i] - from), &list);
        counts[i] = r.out - before;
    }
    lookup_free(list.at);
    lookup_free(r.scratch);
    return status;
}
