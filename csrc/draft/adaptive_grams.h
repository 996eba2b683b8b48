/* N-grams of many orders with a summary of what followed them: see adaptive_grams.c. */
#ifndef LOOKUP_ADAPTIVE_GRAMS_H
#define LOOKUP_ADAPTIVE_GRAMS_H

#include "../core/internal.h"

#define N_ORDERS 8
#define LONGEST_ORDER 32
static const uint32_t ORDER[N_ORDERS] = {1, 2, 3, 4, 6, 8, 16, 32};

#define NO_TOKEN (-1)
#define NOWHERE UINT32_MAX
#define RUN_CAP 7u

/* What followed one n-gram: how often anything did, the two most frequent followers (a third one
 * takes the place of the rarer), the latest one, and how often in a row it came. */
typedef struct {
    uint32_t hash;
    uint32_t at;        /* where the latest follower stands in the tier's text, or NOWHERE */
    int32_t token[2];   /* NO_TOKEN if there is no second */
    uint16_t total, count[2];
    uint8_t order;      /* index into ORDER */
    uint8_t run : 3;
    uint8_t latest : 1; /* which of the two came last */
    uint8_t seen : 1;   /* counted again since the clock's hand passed */
} gram;

/* The text behind a tier: positions count on for ever, the latest `held` tokens are there. */
typedef struct {
    int32_t *tokens;
    uint32_t mask;  /* of positions: a ring, or UINT32_MAX */
    uint32_t end;   /* the position after the last token */
    uint32_t held;
} tier_text;

INLINE bool text_has(const tier_text *t, uint32_t at) { return (uint32_t)(t->end - 1 - at) < t->held; }
/* The token at a position, NO_TOKEN if it is not there (any more, or yet). */
INLINE int32_t text_at(const tier_text *t, uint32_t at) { return text_has(t, at) ? t->tokens[at & t->mask] : NO_TOKEN; }

void lookup_adaptive_text_push(tier_text *t, int32_t token);

#define LOOKUP_ADAPTIVE_MOST_GRAMS (1u << 25) /* places hold 25 bits of an id */

typedef struct {
    gram *grams;         /* from 1 on */
    uint32_t *places;    /* a hash table: id << 7 | tag, 0 is free */
    uint32_t n, capacity, limit; /* grams used, allocated, allowed */
    uint32_t bits;       /* log2 of the number of places */
    uint32_t hand;       /* where the clock looks for the next gram to give up */
    tier_text text;
} gram_tier;

/* The history as its tokens and the hash of each prefix: prefix[i] is that of tokens[0..i). */
typedef struct {
    int32_t *tokens;
    uint64_t *prefix;
} history;

#define HASH_BASE 0x9E3779B97F4A7C15ull
INLINE uint64_t prefix_after(uint64_t prefix, int32_t token) { return prefix * HASH_BASE + (uint32_t)token + 1; }
/* The hash of the ORDER[o] tokens before position n. */
uint32_t lookup_adaptive_hash(const history *h, size_t n, int o);

INLINE uint32_t place_of(const gram_tier *t, uint32_t hash) { return hash >> (32 - t->bits); }
INLINE void gram_prefetch(const gram_tier *t, uint32_t hash) { PREFETCH(&t->places[place_of(t, hash)]); }

/* The n-gram, or NULL. */
INLINE const gram *gram_find(const gram_tier *t, uint32_t hash, int o) {
    uint32_t mask = (1u << t->bits) - 1, tag = hash & 127u;
    for (uint32_t i = place_of(t, hash); t->places[i] != 0; i = (i + 1) & mask) {
        if ((t->places[i] & 127u) != tag) continue;
        const gram *g = &t->grams[t->places[i] >> 7];
        if (LIKELY(g->hash == hash && g->order == o)) return g;
    }
    return NULL;
}

/* How many tokens before the two positions agree, at most `most`. */
uint32_t lookup_adaptive_common(const tier_text *text, uint32_t at, const int32_t *tokens, size_t n, uint32_t most);

/* `limit` n-grams at most, 0 for as many as come. A limited tier has a ring of `ring` tokens (a power
 * of two), an unlimited one borrows its text. */
lookup_status lookup_adaptive_tier_new(gram_tier *t, uint32_t limit, uint32_t ring);
void lookup_adaptive_tier_free(gram_tier *t);
void lookup_adaptive_tier_clear(gram_tier *t);
/* Counts `token`, which stands at `at` in the tier's text, after each n-gram before position n. */
lookup_status lookup_adaptive_count(gram_tier *t, const history *h, size_t n, int32_t token, uint32_t at);
/* Enters an n-gram counted elsewhere: `tokens` oldest first, best follower first. */
lookup_status lookup_adaptive_import(gram_tier *t, const int32_t *tokens, int o, uint32_t total, const int32_t followers[2], const uint32_t counts[2]);
/* Bytes held. */
uint64_t lookup_adaptive_tier_bytes(const gram_tier *t);

#endif
