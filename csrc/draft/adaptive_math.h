/* Logarithms and logistic values of ngram-adaptive, from tables that are built by additions,
 * multiplications and divisions alone, so that every machine has the same ones. */
#ifndef LOOKUP_ADAPTIVE_MATH_H
#define LOOKUP_ADAPTIVE_MATH_H

#include "../core/internal.h"

/* A product and a sum must round separately everywhere. gcc is told by -ffp-contract=off. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define STRETCH_BITS 12
#define SQUASH_STEPS 2048 /* over [-8, 8] */
#define COUNTED 256
#define Z_LIMIT 8.0f

/* Probabilities are kept in units of 2^-22, with how often they were observed in 10 bits below. */
#define P_BITS 22
#define P_ONE (1u << P_BITS)
#define TRIALS_MAX 400u

typedef struct {
    float stretch[(1 << STRETCH_BITS) + 1]; /* logit of p */
    float squash[SQUASH_STEPS + 2];         /* logistic of z */
    float ln_hits[COUNTED];                 /* ln(count + 0.15) */
    float ln_misses[COUNTED];               /* ln(count + 0.35) */
    uint32_t share_of[TRIALS_MAX + 1];      /* 2^32 / n */
} adaptive_tables;

void lookup_adaptive_tables(adaptive_tables *t);
/* Natural logarithm of a positive number, good to 1e-7. */
double lookup_adaptive_ln(double x);

/* A running mean: p in the upper 22 bits, trials in the lower 10; 0 trials: not used yet. */
typedef uint32_t rate;

INLINE rate rate_of(float p, uint32_t trials) {
    uint32_t units = (uint32_t)(p * (float)P_ONE);
    if (units > P_ONE - 1) units = P_ONE - 1;
    return units << 10 | trials;
}
INLINE float rate_p(rate r) { return (float)(r >> 10) * (1.0f / (float)P_ONE); }

INLINE rate rate_after(const adaptive_tables *t, rate r, bool hit) {
    uint32_t n = r & 1023u, p = r >> 10;
    n += n < TRIALS_MAX;
    uint64_t gap = hit ? P_ONE - 1 - p : p;
    uint32_t by = (uint32_t)((gap * t->share_of[n] + (1ull << 31)) >> 32);
    return (hit ? p + by : p - by) << 10 | n;
}

INLINE float stretched(const adaptive_tables *t, rate r) { return t->stretch[r >> (32 - STRETCH_BITS)]; }

/* The logistic function of z in [-8, 8]. */
INLINE float squashed(const adaptive_tables *t, float z) {
    float at = (z + Z_LIMIT) * ((float)SQUASH_STEPS / (2 * Z_LIMIT));
    int32_t i = (int32_t)at;
    float part = at - (float)i;
    return t->squash[i] + (t->squash[i + 1] - t->squash[i]) * part;
}

#endif
