/* The mutable n-gram table: a trie over 1- to 4-grams whose edges are hashed by (node, token).
 *
 * The edge from an n-gram to its follower y is the node of the n-gram extended by y, so one record
 * serves as the follower's count and as the longer n-gram's home. A stream keeps the nodes of its
 * last 0..4 tokens; one more token is five edge look-ups that do not depend on each other, and each
 * n-gram's total, maximum and best follower are kept up to date with it, so that drafting never
 * scans followers without need. Nodes only ever grow at the end of one array. */
#include "table.h"

#define FIRST_SLOT_BITS 10
#define MAX_NODES 0x7fffffffu

lookup_status lookup_table_new(lookup_table **table) {
    CHECK(table != NULL, LOOKUP_E_ARGUMENT);
    lookup_table *t = lookup_alloc(1, sizeof *t);
    CHECK(t != NULL, LOOKUP_E_MEMORY);
    t->slot_bits = FIRST_SLOT_BITS;
    t->capacity = 1u << (FIRST_SLOT_BITS - 1);
    t->slots = lookup_alloc((size_t)1 << t->slot_bits, sizeof *t->slots);
    t->nodes = lookup_alloc(t->capacity, sizeof *t->nodes);
    if (t->slots == NULL || t->nodes == NULL) {
        lookup_table_free(t);
        return LOOKUP_E_MEMORY;
    }
    t->n_nodes = 1;
    *table = t;
    return LOOKUP_OK;
}

void lookup_table_free(lookup_table *t) {
    if (t == NULL) return;
    lookup_index_free(t->index);
    lookup_free(t->slots);
    lookup_free(t->nodes);
    lookup_free(t);
}

/* The slot where an edge stands or would stand. */
static uint32_t slot_of(const lookup_table *t, uint64_t h, uint32_t id) {
    uint32_t mask = (1u << t->slot_bits) - 1, at = (uint32_t)(h >> (64 - t->slot_bits));
    while (t->slots[at] != 0 && (uint32_t)t->slots[at] != id) at = (at + 1) & mask;
    return at;
}

void lookup_table_reset(lookup_table *t) {
    if (t == NULL) return;
    size_t n_slots = (size_t)1 << t->slot_bits;
    if (t->n_nodes > n_slots / 16) memset(t->slots, 0, n_slots * sizeof *t->slots);
    else /* backwards: later nodes stand behind earlier ones in a chain, never in front */
        for (uint32_t id = t->n_nodes - 1; id >= 1; --id)
            t->slots[slot_of(t, edge_hash(t->nodes[id].parent, t->nodes[id].token), id)] = 0;
    t->n_nodes = 1;
    memset(&t->nodes[ROOT], 0, sizeof *t->nodes);
    lookup_table_end_stream(t);
    lookup_index_reset(t->index);
}

void lookup_table_end_stream(lookup_table *t) {
    if (t == NULL) return;
    memset(t->state, 0, sizeof t->state);
    t->depth = 0;
}

static lookup_status grow(lookup_table *t) {
    CHECK(t->capacity <= MAX_NODES / 2 && t->slot_bits < 31, LOOKUP_E_LIMIT);
    uint32_t bits = t->slot_bits + 1, capacity = 2 * t->capacity;
    uint64_t *slots = lookup_alloc((size_t)1 << bits, sizeof *slots);
    node *nodes = slots ? lookup_realloc(t->nodes, capacity, sizeof *nodes) : NULL;
    if (nodes == NULL) {
        lookup_free(slots);
        return LOOKUP_E_MEMORY;
    }
    lookup_free(t->slots);
    t->slots = slots;
    t->nodes = nodes;
    t->slot_bits = bits;
    t->capacity = capacity;
    for (uint32_t id = 1; id < t->n_nodes; ++id) {
        uint64_t h = edge_hash(nodes[id].parent, nodes[id].token);
        slots[slot_of(t, h, id)] = ((uint64_t)(uint32_t)(h >> 8) << 32) | id;
    }
    return LOOKUP_OK;
}

/* The node of an edge, made if need be. The caller has reserved a node for it. */
INLINE uint32_t edge(lookup_table *t, uint32_t parent, uint32_t token) {
    uint64_t h = edge_hash(parent, token);
    uint32_t mask = (1u << t->slot_bits) - 1, at = (uint32_t)(h >> (64 - t->slot_bits));
    for (;; at = (at + 1) & mask) {
        uint64_t slot = t->slots[at];
        if (slot == 0) break;
        if ((uint32_t)(slot >> 32) != (uint32_t)(h >> 8)) continue;
        const node *n = &t->nodes[(uint32_t)slot];
        if (LIKELY(n->token == token && n->parent == parent)) return (uint32_t)slot;
    }
    uint32_t id = t->n_nodes++;
    t->nodes[id] = (node){.parent = parent, .token = token};
    t->slots[at] = ((uint64_t)(uint32_t)(h >> 8) << 32) | id;
    return id;
}

INLINE uint32_t add_u32(uint32_t a, uint32_t b, uint32_t limit) {
    uint64_t sum = (uint64_t)a + b;
    return sum > limit ? limit : (uint32_t)sum;
}

/* Counts `child` `by` more times as its parent's follower. */
INLINE void count_edge(lookup_table *t, uint32_t id, uint32_t by) {
    node *child = &t->nodes[id], *parent = &t->nodes[child->parent];
    if (child->count == 0) {
        child->next = parent->first;
        parent->first = id;
    }
    child->count = add_u32(child->count, by, INT32_MAX);
    parent->total = add_u32(parent->total, by, UINT32_MAX);
    if (child->count > parent->max || (child->count == parent->max && child->token < parent->best)) {
        parent->max = child->count;
        parent->best = child->token;
    }
}

static lookup_status reserve(lookup_table *t, uint32_t n) {
    while (UNLIKELY(t->n_nodes + n > t->capacity)) TRY(grow(t));
    return LOOKUP_OK;
}

static lookup_status refresh(const lookup_table *t, decision_index *x, uint32_t id, const int32_t *recent, int order) {
    const node *g = &t->nodes[id];
    index_counts now = {.total = g->total, .max = g->max, .best = g->best, .node = id};
    return lookup_index_refresh(x, &now, recent, order);
}

static lookup_status index_all(const lookup_table *t, decision_index *x) {
    for (uint32_t id = 1; id < t->n_nodes; ++id) {
        int32_t recent[LOOKUP_MAX_ORDER + 1];
        int order = 0;
        for (uint32_t at = id; at != ROOT; at = t->nodes[at].parent) recent[order++] = (int32_t)t->nodes[at].token;
        if (order <= LOOKUP_MAX_ORDER) TRY(refresh(t, x, id, recent, order));
    }
    return LOOKUP_OK;
}

lookup_status lookup_table_index(lookup_table *t, const lookup_thresholds *thresholds) {
    CHECK(t != NULL && lookup_thresholds_valid(thresholds), LOOKUP_E_ARGUMENT);
    decision_index *x;
    TRY(lookup_index_new(&x, thresholds));
    lookup_status status = index_all(t, x);
    if (status != LOOKUP_OK) {
        lookup_index_free(x);
        return status;
    }
    lookup_index_free(t->index);
    t->index = x;
    return LOOKUP_OK;
}

lookup_status lookup_table_push(lookup_table *t, int32_t token) {
    TRY(reserve(t, STATES));
    uint32_t next[STATES + 1] = {ROOT};
    for (uint32_t k = 0; k <= t->depth; ++k) next[k + 1] = edge(t, t->state[k], (uint32_t)token);
    for (uint32_t k = 1; k <= t->depth; ++k) count_edge(t, next[k + 1], 1);
    if (t->index != NULL)
        for (uint32_t k = 1; k <= t->depth; ++k) TRY(refresh(t, t->index, t->state[k], t->recent, (int)k));
    if (t->depth < LOOKUP_MAX_ORDER) t->depth++;
    for (uint32_t k = 1; k <= t->depth; ++k) t->state[k] = next[k];
    memmove(t->recent + 1, t->recent, (LOOKUP_MAX_ORDER - 1) * sizeof *t->recent);
    t->recent[0] = token;
    return LOOKUP_OK;
}

static uint32_t walk(const lookup_table *t, const int32_t *ngram, int32_t order) {
    uint32_t id = ROOT;
    for (int32_t k = 0; k < order && (k == 0 || id != ROOT); ++k) id = table_find(t, id, (uint32_t)ngram[k]);
    return id;
}

/* The most frequent follower, the lowest token on ties, after the best one's count fell. */
static void find_best(const lookup_table *t, node *parent) {
    parent->max = parent->best = 0;
    for (uint32_t id = parent->first; id != ROOT; id = t->nodes[id].next) {
        const node *n = &t->nodes[id];
        if (n->count < parent->max || (n->count == parent->max && n->token >= parent->best)) continue;
        parent->max = n->count;
        parent->best = n->token;
    }
}

/* Takes back one count. A follower whose count ends stands first in its list, as counts end in the
 * opposite order in which they began; its node stays, with nothing counted. */
static void uncount_edge(lookup_table *t, uint32_t id) {
    node *child = &t->nodes[id], *parent = &t->nodes[child->parent];
    child->count--;
    parent->total--;
    if (child->count == 0) parent->first = child->next;
    if (child->token == parent->best) find_best(t, parent);
}

void lookup_table_pop(lookup_table *t, const int32_t *tokens, size_t n) {
    uint32_t before = (uint32_t)(n - 1 < LOOKUP_MAX_ORDER ? n - 1 : LOOKUP_MAX_ORDER);
    uint32_t state[STATES] = {ROOT};
    for (uint32_t k = 1; k < t->depth; ++k) state[k] = t->nodes[t->state[k + 1]].parent;
    if (before == LOOKUP_MAX_ORDER) {
        state[before] = walk(t, tokens + (n - 1 - before), (int32_t)before);
        uncount_edge(t, table_find(t, state[before], (uint32_t)tokens[n - 1]));
    }
    for (uint32_t k = t->depth; k >= 2; --k) uncount_edge(t, t->state[k]);
    memcpy(t->state, state, sizeof state);
    t->depth = before;
    for (uint32_t k = 0; k < before; ++k) t->recent[k] = tokens[n - 2 - k];
}

lookup_status lookup_table_update(lookup_table *t, const int32_t *tokens, size_t n) {
    CHECK(t != NULL && (n == 0 || tokens != NULL), LOOKUP_E_ARGUMENT);
    for (size_t i = 0; i < n; ++i) {
        CHECK(tokens[i] >= 0, LOOKUP_E_TOKEN);
        TRY(lookup_table_push(t, tokens[i]));
    }
    return LOOKUP_OK;
}

static lookup_status add_one(lookup_table *t, int32_t order, const int32_t *ngram, const int32_t *pairs, uint32_t length) {
    CHECK(length < MAX_NODES, LOOKUP_E_LIMIT);
    TRY(reserve(t, (uint32_t)order + length));
    uint32_t id = ROOT;
    int32_t recent[LOOKUP_MAX_ORDER];
    for (int32_t k = 0; k < order; ++k) {
        CHECK(ngram[k] >= 0, LOOKUP_E_TOKEN);
        recent[order - 1 - k] = ngram[k];
        id = edge(t, id, (uint32_t)ngram[k]);
    }
    for (uint32_t i = 0; i < length; ++i) {
        CHECK(pairs[2 * i] >= 0, LOOKUP_E_TOKEN);
        CHECK(pairs[2 * i + 1] > 0, LOOKUP_E_COUNT);
        count_edge(t, edge(t, id, (uint32_t)pairs[2 * i]), (uint32_t)pairs[2 * i + 1]);
    }
    return t->index ? refresh(t, t->index, id, recent, (int)order) : LOOKUP_OK;
}

lookup_status lookup_table_add(lookup_table *t, int32_t order, const int32_t *ngrams, const uint32_t *lengths,
                               const int32_t *entries, size_t n_ngrams, size_t n_pairs) {
    CHECK(t != NULL && order >= 1 && order <= LOOKUP_MAX_ORDER, LOOKUP_E_ARGUMENT);
    CHECK(n_ngrams == 0 || (ngrams && lengths && entries), LOOKUP_E_ARGUMENT);
    size_t p = 0;
    for (size_t g = 0; g < n_ngrams; ++g) {
        CHECK(lengths[g] <= n_pairs - p, LOOKUP_E_SPAN);
        TRY(add_one(t, order, ngrams + (size_t)order * g, entries + 2 * p, lengths[g]));
        p += lengths[g];
    }
    return p == n_pairs ? LOOKUP_OK : LOOKUP_E_SPAN;
}

lookup_status lookup_table_followers(const lookup_table *t, const int32_t *ngram, int32_t order, int32_t *entries,
                                     size_t capacity, size_t *n, uint32_t *total, uint32_t *max) {
    CHECK(t && ngram && n && total && max && order >= 1 && order <= LOOKUP_MAX_ORDER, LOOKUP_E_ARGUMENT);
    CHECK(capacity == 0 || entries != NULL, LOOKUP_E_ARGUMENT);
    uint32_t id = walk(t, ngram, order);
    const node *g = &t->nodes[id];
    *n = 0;
    *total = id == ROOT ? 0 : g->total;
    *max = id == ROOT ? 0 : g->max;
    for (uint32_t c = id == ROOT ? ROOT : g->first; c != ROOT; c = t->nodes[c].next, ++*n) {
        if (*n >= capacity) continue;
        entries[2 * *n] = (int32_t)t->nodes[c].token;
        entries[2 * *n + 1] = (int32_t)t->nodes[c].count;
    }
    return LOOKUP_OK;
}

int lookup_table_path(const lookup_table *t, uint32_t id, int32_t *tokens) {
    int n = 0;
    int32_t back[STATES];
    for (; id != ROOT; id = t->nodes[id].parent) back[n++] = (int32_t)t->nodes[id].token;
    for (int k = 0; k < n; ++k) tokens[k] = back[n - 1 - k];
    return n;
}

lookup_status lookup_table_get_info(const lookup_table *t, lookup_table_info *info) {
    CHECK(t != NULL && info != NULL, LOOKUP_E_ARGUMENT);
    memset(info, 0, sizeof *info);
    int32_t tokens[STATES];
    for (uint32_t id = 1; id < t->n_nodes; ++id) {
        int n = lookup_table_path(t, id, tokens);
        if (n <= LOOKUP_MAX_ORDER && t->nodes[id].total > 0) info->n_ngrams[n - 1]++;
        if (n >= 2 && t->nodes[id].count > 0) info->n_pairs[n - 2]++;
    }
    info->bytes = t->capacity * sizeof(node) + ((uint64_t)8 << t->slot_bits) + lookup_index_bytes(t->index);
    return LOOKUP_OK;
}
