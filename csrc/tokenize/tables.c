/* From a vocabulary to tables: ids by text, merges by pair, which places no token spans. */
#include "tokenize.h"

#include <stdlib.h>

#define JOIN_BITS 23 /* of the hashed set: 1 MB */
/* Pairs that real vocabularies hold number below 200,000; more only means fewer cuts. */

/* Byte-level vocabularies spell a byte as a character: printable ones as themselves, the others from
 * U+0100 on. -1: a character that spells none. */
static int spelled_byte(uint32_t c) {
    if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    c -= 0x100;
    return (int)(c < 0x21 ? c : c < 0x43 ? c - 0x21 + 0x7F : 0xAD);
}

/* Turns a token's text into bytes, in place; false where it is no byte-level spelling. */
static bool despell(uint8_t *out, const uint8_t *p, size_t size, size_t *n) {
    size_t o = 0, k = 0;
    for (size_t i = 0; i < size; i += k) {
        k = p[i] < 0x80 ? 1 : 2;
        if (p[i] >= 0x80 && (p[i] < 0xC2 || p[i] > 0xC5 || i + 1 >= size || (p[i + 1] & 0xC0) != 0x80))
            return false;
        int byte = spelled_byte(k == 1 ? p[i] : (uint32_t)(p[i] & 31) << 6 | (p[i + 1] & 63u));
        if (byte < 0) return false;
        out[o++] = (uint8_t)byte;
    }
    return *n = o, o > 0;
}

int32_t lookup_tokenize_token_of(const lookup_tokenizer *t, const uint8_t *text, size_t n) {
    uint64_t h = hash_bytes(text, n);
    for (uint32_t i = (uint32_t)h & t->slot_mask; t->slots[i].id1; i = (i + 1) & t->slot_mask) {
        if (t->slots[i].tag != (uint32_t)(h >> 32)) continue;
        uint32_t id = t->slots[i].id1 - 1, from = id ? t->ends[id - 1] : 0;
        if (t->ends[id] - from == n && memcmp(t->text + from, text, n) == 0) return (int32_t)id;
    }
    return NO_ID;
}

static void put_token(lookup_tokenizer *t, uint32_t id, const uint8_t *text, size_t n) {
    uint64_t h = hash_bytes(text, n);
    uint32_t i = (uint32_t)h & t->slot_mask;
    while (t->slots[i].id1) i = (i + 1) & t->slot_mask;
    t->slots[i] = (slot){(uint32_t)(h >> 32), id + 1};
}

static uint32_t mask_for(uint64_t count) {
    uint64_t size = 16;
    while (size < count + count / 2) size *= 2;
    return (uint32_t)(size - 1);
}

/* Tokens that no text can give have no text here: others' spelling, unreachable ones. */
static lookup_status add_tokens(lookup_tokenizer *t, const lookup_tokens *v) {
    uint64_t total = v->n_tokens ? v->token_ends[v->n_tokens - 1] : 0;
    CHECK(total < UINT32_MAX && v->n_tokens < INT32_MAX, LOOKUP_E_LIMIT);
    t->slot_mask = mask_for(v->n_tokens);
    t->text = lookup_alloc(total + SLACK, 1);
    t->ends = lookup_alloc(v->n_tokens, sizeof *t->ends);
    t->slots = lookup_alloc((size_t)t->slot_mask + 1, sizeof *t->slots);
    CHECK(t->text && t->ends && t->slots, LOOKUP_E_MEMORY);
    uint64_t from = 0;
    uint32_t at = 0;
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        const uint8_t *p = v->tokens + from;
        size_t n = 0, size = (size_t)(v->token_ends[id] - from);
        bool taken = size != 0 && !(v->unreachable && v->unreachable[id]);
        if (taken && t->scheme == BYTE_LEVEL) taken = despell(t->text + at, p, size, &n);
        else if (taken) memcpy(t->text + at, p, n = size);
        if (taken) {
            CHECK(lookup_tokenize_token_of(t, t->text + at, n) == NO_ID, LOOKUP_E_DUPLICATE);
            put_token(t, id, t->text + at, n);
            if (n > t->longest) t->longest = (uint32_t)n;
            at += (uint32_t)n;
        }
        t->ends[id] = at;
        from = v->token_ends[id];
    }
    return LOOKUP_OK;
}

/* The id of a part of a merge; NO_ID where no text gives it. */
static int32_t part_id(const lookup_tokenizer *t, const uint8_t *p, size_t n, uint8_t *buffer) {
    if (t->scheme == BYTE_LEVEL) {
        if (!despell(buffer, p, n, &n)) return NO_ID;
        p = buffer;
    }
    return lookup_tokenize_token_of(t, p, n);
}

static void put_merge(lookup_tokenizer *t, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    uint32_t i = (uint32_t)fmix64(key) & t->merge_mask;
    for (; t->merges[i].key; i = (i + 1) & t->merge_mask)
        if (t->merges[i].key == key) return; /* the first of two equal merges counts */
    t->merges[i] = (merge){key, rank, id};
}

/* llama.cpp splits a merge at the first space behind the first byte, and passes over one without. */
static lookup_status add_merge(lookup_tokenizer *t, const uint8_t *p, size_t n, uint32_t rank,
                               uint8_t *buffer, bool partial) {
    const uint8_t *space = n > 1 ? memchr(p + 1, ' ', n - 1) : NULL;
    if (!space) return LOOKUP_OK;
    size_t left = (size_t)(space - p), right = n - left - 1;
    int32_t a = part_id(t, p, left, buffer), b = part_id(t, space + 1, right, buffer);
    memcpy(buffer, p, left);
    memcpy(buffer + left, space + 1, right);
    int32_t joined = part_id(t, buffer, left + right, buffer);
    if (a < 0 || b < 0 || joined < 0) return partial ? LOOKUP_OK : LOOKUP_E_NGRAM;
    put_merge(t, a, b, rank, joined);
    return LOOKUP_OK;
}

static lookup_status add_merges(lookup_tokenizer *t, const lookup_tokens *v) {
    uint64_t longest = 0, from = 0;
    for (uint32_t i = 0; i < v->n_merges; from = v->merge_ends[i++])
        if (v->merge_ends[i] - from > longest) longest = v->merge_ends[i] - from;
    t->merge_mask = mask_for(v->n_merges);
    t->merges = lookup_alloc((size_t)t->merge_mask + 1, sizeof *t->merges);
    uint8_t *buffer = lookup_alloc((size_t)longest + 1, 1);
    lookup_status status = t->merges && buffer ? LOOKUP_OK : LOOKUP_E_MEMORY;
    from = 0;
    for (uint32_t i = 0; i < v->n_merges && status == LOOKUP_OK; from = v->merge_ends[i++])
        status = add_merge(t, v->merges + from, (size_t)(v->merge_ends[i] - from), i, buffer,
                           v->unreachable != NULL);
    lookup_free(buffer);
    return status;
}

typedef struct {
    float score;
    uint32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score;
}

/* Equal scores have equal ranks, so that the leftmost of them wins. */
static lookup_status rank_scores(lookup_tokenizer *t, const float *scores) {
    t->ranks = lookup_alloc(t->n_tokens, sizeof *t->ranks);
    scored *order = lookup_alloc(t->n_tokens, sizeof *order);
    if (t->ranks && order) {
        for (uint32_t i = 0; i < t->n_tokens; i++)
            order[i] = (scored){scores[i] == scores[i] ? scores[i] : -3.0e38f, i};
        qsort(order, t->n_tokens, sizeof *order, by_score);
        uint32_t rank = 0;
        for (uint32_t i = 0; i < t->n_tokens; i++) {
            if (i && order[i].score != order[i - 1].score) rank++;
            t->ranks[order[i].id] = rank;
        }
    }
    lookup_free(order);
    return t->ranks && order ? LOOKUP_OK : LOOKUP_E_MEMORY;
}

static lookup_status find_bytes(lookup_tokenizer *t) {
    static const char hex[] = "0123456789ABCDEF";
    for (unsigned b = 0; b < 256; b++) {
        uint8_t name[6] = {'<', '0', 'x', (uint8_t)hex[b >> 4], (uint8_t)hex[b & 15], '>'};
        uint8_t byte = (uint8_t)b;
        t->byte_ids[b] = t->scheme == BYTE_LEVEL ? lookup_tokenize_token_of(t, &byte, 1) : lookup_tokenize_token_of(t, name, 6);
        CHECK(t->byte_ids[b] >= 0 || t->scheme != SENTENCEPIECE, LOOKUP_E_TOKEN);
    }
    return LOOKUP_OK;
}

static uint64_t join_bit(uint64_t before, uint64_t behind) {
    return ((before * 0x9E3779B97F4A7C15ull) ^ (behind * 0xC2B2AE3D27D4EB4Full)) *
               0x9FB21C651E98DF25ull >>
           (64 - JOIN_BITS);
}

/* Some bytes on each side of a place; a sort of context, so that each has entries of its own. */
static uint64_t bytes_bit(const uint8_t *at, uint32_t before, uint32_t behind) {
    uint64_t g = before * 4 + behind, h = 0;
    for (uint32_t i = before; i; i--) g = g << 8 | at[-(ptrdiff_t)i];
    for (uint32_t i = 0; i < behind; i++) h = h << 8 | at[i];
    return join_bit(g, h);
}

static bool starts_char(uint8_t byte) { return (byte & 0xC0) != 0x80; }

/* The characters on both sides of a place. */
static uint64_t chars_bit(const uint8_t *begin, const uint8_t *at) {
    const uint8_t *p = at - 1;
    while (p > begin && !starts_char(*p)) p--;
    size_t n;
    uint32_t before = decode(p, &n);
    return join_bit(before, decode(at, &n));
}

static void note_join(lookup_tokenizer *t, const uint8_t *begin, const uint8_t *at,
                      const uint8_t *end) {
    uint64_t bit;
    if (t->scheme == BYTE_LEVEL) {
        uint32_t before = at - begin < 3 ? (uint32_t)(at - begin) : 3;
        uint32_t behind = end - at < 3 ? (uint32_t)(end - at) : 3;
        bit = bytes_bit(at, before, behind);
        t->contexts |= 1u << (4 * before + behind);
    } else {
        bit = chars_bit(begin, at);
    }
    t->joins[bit >> 3] |= (uint8_t)(1u << (bit & 7));
}

/* Every place inside a token where a character may begin. Byte-level tokens may begin and end inside
 * one, so these note up to three bytes on each side, as many as the token has. */
static lookup_status note_joins(lookup_tokenizer *t) {
    t->joins = lookup_alloc(1u << (JOIN_BITS - 3), 1);
    CHECK(t->joins, LOOKUP_E_MEMORY);
    const uint8_t *begin = t->text;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        const uint8_t *end = t->text + t->ends[id];
        for (const uint8_t *at = begin + 1; at < end; at++)
            if (starts_char(*at)) note_join(t, begin, at, end);
        begin = end;
    }
    return LOOKUP_OK;
}

/* Whether some token may hold the characters on both sides of a place together. */
bool lookup_tokenize_may_join(const lookup_tokenizer *t, const uint8_t *begin, const uint8_t *at, const uint8_t *end) {
    if (t->scheme != BYTE_LEVEL) {
        uint64_t bit = chars_bit(begin, at);
        return t->joins[bit >> 3] >> (bit & 7) & 1;
    }
    for (uint32_t before = 1; before <= 3 && at - begin >= (ptrdiff_t)before; before++)
        for (uint32_t behind = 1; behind <= 3 && end - at >= (ptrdiff_t)behind; behind++) {
            if (!(t->contexts >> (4 * before + behind) & 1)) continue;
            uint64_t bit = bytes_bit(at, before, behind);
            if (t->joins[bit >> 3] >> (bit & 7) & 1) return true;
        }
    return false;
}

static lookup_status build(lookup_tokenizer *t, const lookup_tokens *v) {
    t->classes = lookup_alloc(CODE_POINTS, sizeof *t->classes);
    CHECK(t->classes, LOOKUP_E_MEMORY);
    lookup_tokenize_fill_classes(t->rules, t->classes);
    TRY(add_tokens(t, v));
    TRY(find_bytes(t));
    if (t->scheme == SENTENCEPIECE) TRY(rank_scores(t, v->scores));
    else TRY(add_merges(t, v));
    return note_joins(t);
}

lookup_status lookup_tokenizer_new(const lookup_tokens *v, lookup_tokenizer **out) {
    const struct rules *rules = lookup_tokenize_rules_at(v->rules);
    CHECK(rules && (lookup_tokenize_scheme_of(rules) == SENTENCEPIECE) == (v->scores != NULL), LOOKUP_E_ARGUMENT);
    lookup_tokenizer *t = lookup_alloc(1, sizeof *t);
    CHECK(t, LOOKUP_E_MEMORY);
    t->rules = rules;
    t->scheme = lookup_tokenize_scheme_of(rules);
    t->n_tokens = v->n_tokens;
    t->ignore_merges = v->ignore_merges != 0;
    t->space_prefix = v->space_prefix != 0;
    lookup_status status = build(t, v);
    if (status != LOOKUP_OK) lookup_tokenizer_free(t);
    else *out = t;
    return status;
}

void lookup_tokenizer_free(lookup_tokenizer *t) {
    if (!t) return;
    lookup_free(t->classes);
    lookup_free(t->text);
    lookup_free(t->ends);
    lookup_free(t->slots);
    lookup_free(t->merges);
    lookup_free(t->ranks);
    lookup_free(t->joins);
    lookup_free(t);
}
