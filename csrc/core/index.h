/* The decision index of a dynamic cache: the n-grams that pass the thresholds. See index.c. */
#ifndef LOOKUP_INDEX_H
#define LOOKUP_INDEX_H

#include "internal.h"

/* What the index knows of an n-gram: see index.c. */
typedef struct {
    int32_t tokens[LOOKUP_MAX_ORDER]; /* most recent first, -1 where the n-gram is shorter */
    int32_t best;                     /* the token to draft, -1: not trusted (any more) */
    uint32_t node;                    /* its node, or 0 if it has one follower only */
    uint32_t unused[2];
} index_entry;

typedef struct {
    lookup_thresholds thresholds;
    index_entry *entries;
    uint16_t *tags; /* 0: free */
    uint32_t bits;  /* log2 of the number of places */
    uint32_t used;
} decision_index;

/* What a table counts after one n-gram. */
typedef struct {
    uint64_t total, max;
    uint32_t best, node;
} index_counts;

/* The four hashes of an index look-up grow by one token each. */
INLINE uint64_t gram_hash(uint64_t shorter, int32_t token) {
    return (shorter + (uint32_t)token + 0x632BE59BD9B4E019ull) * 0x9E3779B97F4A7C15ull;
}
INLINE uint16_t gram_tag(uint64_t h) { return (uint16_t)((h >> 16) | 1); }

/* The entry of the `order` most recent tokens, or NULL. */
INLINE const index_entry *index_find(const decision_index *x, uint64_t h, const int32_t *recent, int order) {
    uint32_t mask = (1u << x->bits) - 1, at = (uint32_t)(h >> (64 - x->bits));
    uint16_t tag = gram_tag(h);
    for (; x->tags[at] != 0; at = (at + 1) & mask) {
        if (x->tags[at] != tag) continue;
        const index_entry *e = &x->entries[at];
        bool same = order == LOOKUP_MAX_ORDER || e->tokens[order] == -1;
        for (int k = 0; k < order; ++k) same &= e->tokens[k] == recent[k];
        if (same) return e;
    }
    return NULL;
}

INLINE bool trusted(const lookup_thresholds *th, int order, uint64_t total, uint64_t max) {
    return total > 0 && total >= (uint64_t)th->samples[order - 1] && 100 * max >= (uint64_t)th->percent[order - 1] * total;
}

bool lookup_thresholds_valid(const lookup_thresholds *thresholds);
/* Enters what is counted now after one n-gram: its followers in all, the largest count among them and
 * that follower's token. `node` is what the table calls the n-gram. */
lookup_status lookup_index_refresh(decision_index *x, const index_counts *now, const int32_t *recent, int order);
lookup_status lookup_index_new(decision_index **index, const lookup_thresholds *thresholds);
void lookup_index_reset(decision_index *x);
/* Bytes that the index holds, 0 without one. */
uint64_t lookup_index_bytes(const decision_index *x);
void lookup_index_free(decision_index *x);

#endif
