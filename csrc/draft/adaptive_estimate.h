/* The probability of each token that may come: see adaptive_estimate.c. */
#ifndef LOOKUP_ADAPTIVE_ESTIMATE_H
#define LOOKUP_ADAPTIVE_ESTIMATE_H

#include "../core/static.h"
#include "adaptive_align.h"
#include "adaptive_learned.h"

#define MAX_CANDIDATES 10
#define MAX_EVIDENCE N_KINDS
#define MAX_RATES (MAX_EVIDENCE + 8)
#define N_BIASES 4

/* The static 2-gram that ends before the token to come, as far as it is used: total and the two most
 * frequent followers. */
typedef struct {
    uint64_t tag;  /* the 2-gram's key + 1; 0 is a free place */
    uint64_t length; /* followers that a look-up reads */
    uint32_t total, count[2];
    int32_t token[2];
} static_part;

#define PART_BITS 13

/* What a look-up costs again, a scan of many followers does not: places by 2-gram, two each. */
typedef struct {
    const lookup_static *cache;
    static_part (*parts)[2];
} static_tier;

/* One n-gram of one tier that the history ends in, as the estimate sees it. */
typedef struct {
    uint32_t total, count[2];
    int32_t token[2], latest;
    uint8_t kind, order, tier, step, run;
} evidence;

typedef struct {
    _Alignas(16) float x[N_INPUTS];
    float z, p;
    int32_t token;
    uint8_t depth[2], n_rates;
    rate *rates[MAX_RATES];
    rate firsts[MAX_RATES]; /* what each stands for while nothing was observed */
    float *support, *alignment, *bias[N_BIASES];
} candidate;

typedef struct {
    candidate all[MAX_CANDIDATES];
    int n, best;         /* best: index of the likeliest, -1 if there is none */
    float p, part;       /* the best one's corrected probability; place between two corrections */
    float *match, *evidence;
    mean *low[2];
} estimate;

/* All that an estimate looks at. */
typedef struct {
    const adaptive_tables *tables;
    learned *learned;
    static_tier *fixed;
    gram_tier *tiers[2];   /* context, dynamic */
    const history *text;
    align_view align;
} estimator;

/* The token that follows position n. Moves the alignment on to longer matches; changes nothing that
 * was learned, so that drafts leave no trace. */
void lookup_adaptive_estimate(const estimator *s, size_t n, alignment *a, estimate *e);
void lookup_adaptive_learn(const estimator *s, estimate *e, int32_t truth);
/* Starts fetching what an estimate at position n reads. */
void lookup_adaptive_prefetch(const estimator *s, size_t n);

/* adaptive_static.c */
lookup_status lookup_adaptive_static_new(static_tier *t, const lookup_static *cache);
void lookup_adaptive_static_free(static_tier *t);
const static_part *lookup_adaptive_static_part(static_tier *t, int32_t before, int32_t last);

#endif
