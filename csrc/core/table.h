/* The n-gram table's inside, for the files that draft from it. See table.c. */
#ifndef LOOKUP_TABLE_H
#define LOOKUP_TABLE_H

#include "index.h"

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

struct lookup_table {
    node *nodes;        /* nodes[ROOT] is the empty n-gram */
    uint64_t *slots;    /* hash tag << 32 | node, 0: free */
    uint32_t n_nodes, capacity;
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

lookup_status lookup_table_push(lookup_table *t, int32_t token);
/* Takes back the last push of a table that has no index and holds one stream, tokens[0..n). */
void lookup_table_pop(lookup_table *t, const int32_t *tokens, size_t n);
/* The n-gram of a node, oldest token first; returns its length (up to 5: an n-gram and a follower). */
int lookup_table_path(const lookup_table *t, uint32_t id, int32_t *tokens);

#endif
