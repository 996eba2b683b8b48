/* Text to ids, with a small vocabulary from the input, against merging the dull way: the whole text
 * looked through anew for the best pair after every join. Byte-level text is one word, so that no
 * splitter comes in between; SentencePiece has none. Literals, and a memo that always collides. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define MOST 600 /* tokens */
#define TEXT 400 /* bytes */
#define SPACE "\xE2\x96\x81"

static const char *const CHARS[] = {"a", "b", "c", "\xC3\xA9", "\xE4\xB8\xAD", "\xE6\x96\x87", "d", "\xF0\xA0\x80\x80"};

typedef struct {
    uint8_t text[64 * MOST], merge_text[160 * MOST];
    uint64_t ends[MOST], merge_ends[MOST];
    float scores[MOST];
    int32_t left[MOST], right[MOST], joined[MOST];
    uint32_t n, n_merges;
    bool scored;
} words;

/* A byte as byte-level vocabularies spell it; returns how many bytes that takes. */
static size_t spell(uint8_t byte, uint8_t *out) {
    uint32_t c = byte;
    if (!((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c != 0xAD)))
        c = 0x100 + (c < 0x21 ? c : c == 0xAD ? 0x43 : c - 0x7F + 0x21);
    if (c < 0x80) return out[0] = (uint8_t)c, 1;
    out[0] = (uint8_t)(0xC0 | c >> 6);
    out[1] = (uint8_t)(0x80 | (c & 63));
    return 2;
}

static uint64_t start_of(const words *w, uint32_t id) { return id ? w->ends[id - 1] : 0; }
static size_t size_of(const words *w, uint32_t id) { return (size_t)(w->ends[id] - start_of(w, id)); }

static int32_t find(const words *w, const uint8_t *p, size_t n) {
    for (uint32_t i = 0; i < w->n; i++)
        if (size_of(w, i) == n && memcmp(w->text + start_of(w, i), p, n) == 0) return (int32_t)i;
    return -1;
}

static void add(words *w, const void *p, size_t n, float score) {
    memcpy(w->text + (w->n ? w->ends[w->n - 1] : 0), p, n);
    w->ends[w->n] = (w->n ? w->ends[w->n - 1] : 0) + n;
    w->scores[w->n++] = score;
}

/* Joins two tokens; with merges, that way is a merge of its own. */
static void join(words *w, uint32_t a, uint32_t b, float score) {
    uint8_t both[64];
    size_t n = size_of(w, a), m = size_of(w, b);
    if (n + m > sizeof both) return;
    memcpy(both, w->text + start_of(w, a), n);
    memcpy(both + n, w->text + start_of(w, b), m);
    int32_t id = find(w, both, n + m);
    if (id < 0) {
        if (w->n == MOST) return;
        id = (int32_t)w->n;
        add(w, both, n + m, score);
    }
    uint64_t at = w->n_merges ? w->merge_ends[w->n_merges - 1] : 0;
    memcpy(w->merge_text + at, both, n);
    w->merge_text[at + n] = ' ';
    memcpy(w->merge_text + at + n + 1, both + n, m);
    w->left[w->n_merges] = (int32_t)a;
    w->right[w->n_merges] = (int32_t)b;
    w->joined[w->n_merges] = id;
    w->merge_ends[w->n_merges++] = at + n + 1 + m;
}

static void take_words(input *in, words *w) {
    w->scored = take(in) & 1;
    for (int b = 0; b < 256; b++) {
        static const char hex[] = "0123456789ABCDEF";
        uint8_t name[6] = {'<', '0', 'x', (uint8_t)hex[b >> 4], (uint8_t)hex[b & 15], '>'}, one[2];
        if (w->scored) add(w, name, 6, 0);
        else add(w, one, spell((uint8_t)b, one), 0);
    }
    for (size_t i = 0; w->scored && i < 7; i++) add(w, CHARS[i], strlen(CHARS[i]), 0);
    if (w->scored) add(w, SPACE, 3, 0);
    for (uint32_t n = take(in); n && left(in) && w->n_merges + 1 < MOST; n--) {
        uint32_t a = take(in), b = take(in), first = w->scored ? 256 : 0;
        if (a >= 128) a += w->n - 256;
        if (b >= 128) b += w->n - 256;
        if (!w->scored && a < 128) a = (uint8_t)CHARS[a % 8][(a / 8) % strlen(CHARS[a % 8])];
        if (!w->scored && b < 128) b = (uint8_t)CHARS[b % 8][(b / 8) % strlen(CHARS[b % 8])];
        join(w, first + a % (w->n - first), first + b % (w->n - first), (float)(take(in) % 8));
    }
}

/* The best join of two neighbours: its rank, and the id it gives. */
static int64_t rank_of(const words *w, const uint8_t *text, const size_t *at, const int32_t *ids, size_t i, int32_t *id) {
    if (w->scored) {
        *id = find(w, text + at[i], at[i + 2] - at[i]);
        return *id < 0 ? INT64_MAX : (int64_t)(-w->scores[*id]);
    }
    for (uint32_t k = 0; k < w->n_merges; k++)
        if (w->left[k] == ids[i] && w->right[k] == ids[i + 1]) return *id = w->joined[k], (int64_t)k;
    return INT64_MAX;
}

static size_t dull(const words *w, const uint8_t *text, size_t size, int32_t *out) {
    static size_t at[2 * TEXT * 3];
    static int32_t ids[2 * TEXT * 3];
    size_t n = 0, count = 0;
    for (size_t i = 0; i < size; n++) {
        size_t k = 1;
        uint8_t one[2];
        while (w->scored && i + k < size && (text[i + k] & 0xC0) == 0x80) k++;
        at[n] = i;
        ids[n] = w->scored ? find(w, text + i, k) : find(w, one, spell(text[i], one));
        i += k;
    }
    at[n] = size;
    for (;;) {
        int64_t best = INT64_MAX;
        size_t where = 0;
        int32_t id = 0, best_id = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            int64_t rank = rank_of(w, text, at, ids, i, &id);
            if (rank < best) best = rank, where = i, best_id = id;
        }
        if (best == INT64_MAX) break;
        ids[where] = best_id;
        memmove(ids + where + 1, ids + where + 2, (n - where - 2) * sizeof *ids);
        memmove(at + where + 1, at + where + 2, (n - where - 1) * sizeof *at);
        n--;
    }
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0) out[count++] = ids[i];
        else for (size_t k = at[i]; k < at[i + 1]; k++) out[count++] = text[k]; /* byte tokens come first */
    return count;
}

static size_t take_text(input *in, bool spaces, uint8_t *text) {
    size_t n = 0;
    while (left(in) && n + 4 < TEXT) {
        uint32_t b = take(in);
        const char *c = spaces && b % 11 == 0 ? " " : CHARS[b % 8];
        for (uint32_t i = 0; i <= (b >> 6 == 3 ? b & 31 : 0) && n + 4 < TEXT; i++) {
            memcpy(text + n, c, strlen(c));
            n += strlen(c);
        }
    }
    return n;
}

static size_t escape(const uint8_t *text, size_t n, uint8_t *out) {
    size_t o = 3;
    if (n == 0) return 0;
    memcpy(out, SPACE, 3);
    for (size_t i = 0; i < n; i++)
        if (text[i] == ' ') memcpy(out + o, SPACE, 3), o += 3;
        else out[o++] = text[i];
    return o;
}

static void compare(const words *w, const lookup_tokenizer *t, const lookup_literals *literals, const uint8_t *text, size_t size,
                    const int32_t *expected, size_t count) {
    size_t room = (size_t)lookup_tokenize_room(t, size);
    (void)w;
    for (uint32_t bits = 2; bits <= 10; bits += 8) {
        lookup_memo *memo;
        MUST(lookup_memo_new(bits, &memo) == LOOKUP_OK);
        for (int again = 0; again < 2; again++) {
            uint8_t *exact = test_memory(size + 64);
            int32_t *ids = test_memory(4 * room);
            int64_t found = 0;
            uint64_t end = size;
            memcpy(exact, text, size);
            memset(exact + size, 'a', 64);
            MUST(lookup_tokenize(t, literals, memo, exact, &end, 1, ids, room, &found) == LOOKUP_OK);
            MUST((size_t)found == count && memcmp(ids, expected, 4 * count) == 0);
            free(exact);
            free(ids);
        }
        lookup_memo_free(memo);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static words w;
    static uint8_t text[TEXT], escaped[3 * TEXT + 3];
    static int32_t expected[6 * TEXT + 64];
    input in = input_of(data, size);
    memset(&w, 0, sizeof w);
    take_words(&in, &w);
    size_t n = take_text(&in, w.scored, text);
    lookup_tokens given = {w.text, w.ends, NULL, w.merge_text, w.merge_ends, w.scored ? w.scores : NULL, w.n,
                           w.scored ? 0 : w.n_merges, lookup_tokenizer_rules(w.scored ? "spm" : "gpt-2"), 0, w.scored};
    lookup_tokenizer *t;
    MUST(lookup_tokenizer_new(&given, &t) == LOOKUP_OK);
    size_t count = w.scored ? dull(&w, escaped, escape(text, n, escaped), expected) : dull(&w, text, n, expected);
    compare(&w, t, NULL, text, n, expected, count);
    /* One literal of one character: the text falls into parts. */
    static const uint64_t end = 1;
    static const int32_t id = 7;
    static const uint8_t strip = 0;
    lookup_literals *literals;
    MUST(lookup_literals_new((const uint8_t *)"c", &end, &id, &strip, 1, &literals) == LOOKUP_OK);
    count = 0;
    for (size_t from = 0, i = 0; i <= n; i++) {
        if (i < n && text[i] != 'c') continue;
        if (w.scored) count += dull(&w, escaped, escape(text + from, i - from, escaped), expected + count);
        else count += dull(&w, text + from, i - from, expected + count);
        if (i < n) expected[count++] = id;
        from = i + 1;
    }
    compare(&w, t, literals, text, n, expected, count);
    lookup_literals_free(literals);
    lookup_tokenizer_free(t);
    return 0;
}
