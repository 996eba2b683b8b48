/* The decision index of a dynamic cache: only n-grams that pass the thresholds, with what they would
 * draft. Few do, so the look-ups of a draft stay in a small, hot table instead of missing in a large
 * one; most are settled by a 16-bit tag. */
#include "index.h"

#define FIRST_BITS 10

bool lookup_thresholds_valid(const lookup_thresholds *th) {
    if (th == NULL) return false;
    for (int k = 0; k < 4; ++k)
        if (th->samples[k] < 1 || th->percent[k] < 0 || th->percent[k] > 100) return false;
    return true;
}

void lookup_index_free(decision_index *x) {
    if (x == NULL) return;
    lookup_free(x->entries);
    lookup_free(x->tags);
    lookup_free(x);
}

static uint64_t hash_entry(const int32_t *recent, int order) {
    uint64_t h = 0;
    for (int k = 0; k < order; ++k) h = gram_hash(h, recent[k]);
    return h;
}

static void place(decision_index *x, const index_entry *e) {
    int order = 1;
    while (order < LOOKUP_MAX_ORDER && e->tokens[order] != -1) ++order;
    uint64_t h = hash_entry(e->tokens, order);
    uint32_t mask = (1u << x->bits) - 1, at = (uint32_t)(h >> (64 - x->bits));
    while (x->tags[at] != 0) at = (at + 1) & mask;
    x->tags[at] = gram_tag(h);
    x->entries[at] = *e;
    x->used++;
}

/* A larger index; entries that lost their trust are left behind. */
static lookup_status grow(decision_index *x) {
    CHECK(x->bits < 31, LOOKUP_E_LIMIT);
    decision_index bigger = {.thresholds = x->thresholds, .bits = x->bits + 1};
    bigger.entries = lookup_alloc((size_t)1 << bigger.bits, sizeof *bigger.entries);
    bigger.tags = lookup_alloc((size_t)1 << bigger.bits, sizeof *bigger.tags);
    if (bigger.entries == NULL || bigger.tags == NULL) {
        lookup_free(bigger.entries);
        lookup_free(bigger.tags);
        return LOOKUP_E_MEMORY;
    }
    for (size_t at = 0; at < (size_t)1 << x->bits; ++at)
        if (x->tags[at] != 0 && x->entries[at].best >= 0) place(&bigger, &x->entries[at]);
    lookup_free(x->entries);
    lookup_free(x->tags);
    *x = bigger;
    return LOOKUP_OK;
}

lookup_status lookup_index_refresh(decision_index *x, const index_counts *now, const int32_t *recent, int order) {
    bool trust = trusted(&x->thresholds, order, now->total, now->max);
    uint64_t h = hash_entry(recent, order);
    const index_entry *known = index_find(x, h, recent, order);
    if (known == NULL && !trust) return LOOKUP_OK;
    index_entry e = {.tokens = {-1, -1, -1, -1}, .best = trust ? (int32_t)now->best : -1,
                     .node = now->max == now->total ? 0 : now->node};
    for (int k = 0; k < order; ++k) e.tokens[k] = recent[k];
    if (known != NULL) {
        x->entries[known - x->entries] = e;
        return LOOKUP_OK;
    }
    if (x->used + 1 > (1u << x->bits) / 2) TRY(grow(x));
    place(x, &e);
    return LOOKUP_OK;
}

lookup_status lookup_index_new(decision_index **index, const lookup_thresholds *thresholds) {
    decision_index *x = lookup_alloc(1, sizeof *x);
    CHECK(x != NULL, LOOKUP_E_MEMORY);
    x->thresholds = *thresholds;
    x->bits = FIRST_BITS;
    x->entries = lookup_alloc((size_t)1 << x->bits, sizeof *x->entries);
    x->tags = lookup_alloc((size_t)1 << x->bits, sizeof *x->tags);
    if (x->entries == NULL || x->tags == NULL) {
        lookup_index_free(x);
        return LOOKUP_E_MEMORY;
    }
    *index = x;
    return LOOKUP_OK;
}

void lookup_index_reset(decision_index *x) {
    if (x == NULL) return;
    memset(x->tags, 0, ((size_t)1 << x->bits) * sizeof *x->tags);
    x->used = 0;
}

uint64_t lookup_index_bytes(const decision_index *x) {
    return x == NULL ? 0 : ((uint64_t)1 << x->bits) * (sizeof *x->entries + sizeof *x->tags);
}
