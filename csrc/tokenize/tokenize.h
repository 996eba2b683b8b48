/* What the files of csrc/tokenize share: the tokenizer, a run over one text, reading characters. */
#ifndef LOOKUP_TOKENIZE_H
#define LOOKUP_TOKENIZE_H

#include "../core/internal.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Classes of characters; IN is set for every character, so that 0 stands for the end of the text.
 * A family names up to three sets of its own. */
enum {
    L = 1, N = 2, P = 4, M = 8, SYM = 16, S = 32, NL = 64, SET1 = 128, SET2 = 256, SET3 = 512,
    IN = 1024,
};
#define CODE_POINTS 0x110000u
#define NO_ID (-1)
#define NO_RANK UINT32_MAX
/* Reads may go this far beyond a text. */
#define SLACK 64

typedef struct {
    uint64_t key; /* left << 32 | right, plus 1; 0: free */
    uint32_t rank;
    int32_t id;
} merge;

typedef struct {
    uint32_t tag; /* of the text's hash */
    uint32_t id1; /* id + 1; 0: free */
} slot;

typedef enum { BYTE_LEVEL, SENTENCEPIECE, RAW_MERGES } scheme;

struct rules;
struct lookup_tokenizer {
    const struct rules *rules;
    uint16_t *classes; /* of every code point */
    uint8_t *text;     /* what the tokens stand for, one after the other */
    uint32_t *ends;
    slot *slots; /* ids by text */
    merge *merges;
    uint32_t *ranks; /* by score, of every id */
    uint8_t *joins;  /* hashed set: what may lie on both sides of a place inside a token */
    uint32_t slot_mask, merge_mask, n_tokens, longest;
    uint32_t contexts; /* which (bytes before, bytes behind) the set holds: bit 4 * before + behind */
    int32_t byte_ids[256];
    scheme scheme;
    bool ignore_merges, space_prefix;
};

#define QUEUE 32
typedef struct short_entry short_entry;
typedef struct {
    uint64_t low, high;
    short_entry *entry; /* NULL: a long piece */
    const uint8_t *at;
    size_t size;
} queued;

typedef struct {
    const lookup_tokenizer *t;
    lookup_memo *memo;
    int32_t *out;
    size_t n_queued;
    queued queue[QUEUE];
    void *scratch; /* for long merges */
    size_t scratch_size;
    lookup_status status;
} run;

/* One character of valid UTF-8. */
INLINE uint32_t decode(const uint8_t *p, size_t *n) {
    uint32_t c = p[0];
    if (c < 0x80) return *n = 1, c;
    if (c < 0xE0) return *n = 2, (c & 31) << 6 | (p[1] & 63u);
    if (c < 0xF0) return *n = 3, (c & 15) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    return *n = 4, (c & 7) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
}

/* Its class, 0 at the end. */
INLINE uint32_t class_at(const lookup_tokenizer *t, const uint8_t *p, const uint8_t *end, size_t *n) {
    if (p >= end) return *n = 0, 0;
    uint32_t c = decode(p, n);
    return t->classes[c];
}

INLINE uint64_t hash_bytes(const uint8_t *p, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15ull, v = 0;
    for (; n >= 8; n -= 8, p += 8) {
        h = (h ^ load64(p)) * 0x9FB21C651E98DF25ull;
        h ^= h >> 32;
    }
    memcpy(&v, p, n);
    h = (h ^ v) * 0x9FB21C651E98DF25ull;
    return h ^ (h >> 29);
}

/* tables.c */
int32_t lookup_tokenize_token_of(const lookup_tokenizer *t, const uint8_t *text, size_t n);
bool lookup_tokenize_may_join(const lookup_tokenizer *t, const uint8_t *begin, const uint8_t *at, const uint8_t *end);
/* merging.c: the ids of one piece, at `out`; their number. */
size_t lookup_tokenize_merge_piece(run *r, const uint8_t *p, size_t n, bool whole, int32_t *out);
/* memo.c */
void lookup_tokenize_piece_long(run *r, const uint8_t *p, size_t n);
void lookup_tokenize_flush(run *r);
void lookup_tokenize_enqueue(run *r, const uint8_t *p, size_t n);
/* rules.c */
void lookup_tokenize_fill_classes(const struct rules *rules, uint16_t *classes);
scheme lookup_tokenize_scheme_of(const struct rules *rules);
const struct rules *lookup_tokenize_rules_at(int32_t index);
/* splitting.c */
void lookup_tokenize_split(run *r, const uint8_t *p, const uint8_t *end);

#endif
