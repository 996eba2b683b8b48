/* How many tokens to draft: see adaptive_length.c. */
#ifndef LOOKUP_ADAPTIVE_LENGTH_H
#define LOOKUP_ADAPTIVE_LENGTH_H

#include "../core/internal.h"

#define MAX_WIDTHS 256

/* What verifying a batch costs by its width, in plain decodes: linear between the points and on. */
typedef struct {
    int32_t widths[MAX_WIDTHS];
    double costs[MAX_WIDTHS];
    size_t n;
} cost_curve;

lookup_status lookup_adaptive_curve(cost_curve *curve, const int32_t *widths, const double *costs, size_t n);
double lookup_adaptive_cost(const cost_curve *curve, size_t width);
/* A chain whose probability fell below this cannot pay: one more token costs no less, whatever the
 * width, from a batch of `width` tokens on. */
double lookup_adaptive_least_slope(const cost_curve *curve, size_t width, size_t most);

/* How many tokens of one chain to draft; p[i] is the probability of token i if all before it were
 * accepted; cost[w] for w up to n + 1. `from` has space for n + 1 numbers. */
size_t lookup_adaptive_length(const float *p, size_t n, const double *cost, double *from);

#endif
