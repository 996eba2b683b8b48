/* The n-gram table's inside, for the files that draft from it. See table.c. */
#ifndef LOOKUP_TABLE_H
#define LOOKUP_TABLE_H

#include "internal.h"

#define ROOT 0u
#define STATES (LOOKUP_MAX_ORDER + 1)

/* One n-gram, and at the same time one follower of the n-gram that lacks its last token. */
typedef struct {
    uint32_t parent, token;
    uint32_t count; /* how often `token` followed the parent */
    uint32_t total; /* followers of this n-gram counted in all, */
    uint32_t max;   /* the largest count among them, */
    uint32_t best;  /* and its token, the lowest on ties */
    uint32_t first, next; /* followers of this n-gram; further followers of the parent */
} node;

typedef struct index_entry index_entry;

/* What the index knows of an n-gram: see index.c. */
struct index_entry {
    int32_t tokens[LOOKUP_MAX_ORDER]; /* most recent first, -1 where the n-gram is shorter */
    int32_t best;                     /* the token to draft, -1: not trusted (any more) */
    uint32_t node;                    /* its node, or 0 if it has one follower only */
    uint32_t unused[2];
};

typedef struct {
    lookup_thresholds thresholds;
    index_entry *entries;
    uint16_t *tags; /* 0: free */
    uint32_t bits;  /* log2 of the number of places */
    uint32_t used;
} decision_index;

struct lookup_table {
    node *nodes;        /* nodes[ROOT] is the empty n-gram */
    uint64_t *slots;    /* hash tag << 32 | node, 0: free */
    uint32_t n_nodes, room;
    uint32_t slot_bits; /* log2 of the number of slots */
    uint32_t state[STATES]; /* the stream's last k tokens as a node, ROOT beyond its start */
    uint32_t depth;         /* how many of state[1..4] exist */
    int32_t recent[LOOKUP_MAX_ORDER]; /* the same as tokens, most recent first */
    decision_index *index;
};

INLINE uint64_t edge_hash(uint32_t parent, uint32_t token) {
    return (((uint64_t)parent << 32) | token) * 0x9E3779B97F4A7C15ull;
}

/* The node of `parent`'s n-gram extended by `token`, or ROOT. */
INLINE uint32_t table_find(const lookup_table *t, uint32_t parent, uint32_t token) {
    uint64_t h = edge_hash(parent, token);
    uint32_t mask = (1u << t->slot_bits) - 1, at = (uint32_t)(h >> (64 - t->slot_bits));
    for (;; at = (at + 1) & mask) {
        uint64_t slot = t->slots[at];
        if (slot == 0) return ROOT;
        if ((uint32_t)(slot >> 32) != (uint32_t)(h >> 8)) continue;
        const node *n = &t->nodes[(uint32_t)slot];
        if (LIKELY(n->token == token && n->parent == parent)) return (uint32_t)slot;
    }
}

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

bool thresholds_valid(const lookup_thresholds *thresholds);
/* Brings the index up to date for one n-gram whose counts have just changed. */
lookup_status index_refresh(decision_index *x, const node *nodes, uint32_t id, const int32_t *recent, int order);
void index_free(decision_index *x);
lookup_status table_push(lookup_table *t, int32_t token);
/* Takes back the last push of a table that has no index and holds one stream, tokens[0..n). */
void table_pop(lookup_table *t, const int32_t *tokens, size_t n);

#endif
