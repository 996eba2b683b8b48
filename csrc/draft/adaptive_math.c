/* The tables behind ngram-adaptive's arithmetic. */
#include "adaptive_math.h"

#define LN2 0.69314718055994530942

double lookup_adaptive_ln(double x) {
    int exponent = 0;
    for (; x >= 1.5; x *= 0.5) ++exponent;
    for (; x < 0.75; x *= 2) --exponent;
    double s = (x - 1) / (x + 1), square = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return 2 * s * sum + exponent * LN2;
}

static double exp_of(double x) {
    double small = x / 1024, term = 1, sum = 1;
    for (int k = 1; k <= 8; ++k) {
        term = term * small / k;
        sum += term;
    }
    for (int k = 0; k < 10; ++k) sum *= sum;
    return sum;
}

void lookup_adaptive_tables(adaptive_tables *t) {
    const int n = 1 << STRETCH_BITS;
    for (int i = 0; i <= n; ++i) {
        double p = (i + 0.5) / n;
        p = p < 2e-4 ? 2e-4 : p > 1 - 2e-4 ? 1 - 2e-4 : p;
        t->stretch[i] = (float)(lookup_adaptive_ln(p) - lookup_adaptive_ln(1 - p));
    }
    for (int i = 0; i < SQUASH_STEPS + 2; ++i)
        t->squash[i] = (float)(1 / (1 + exp_of(8 - 16.0 * i / SQUASH_STEPS)));
    for (int i = 0; i < COUNTED; ++i) {
        t->ln_hits[i] = (float)lookup_adaptive_ln(i + 0.15);
        t->ln_misses[i] = (float)lookup_adaptive_ln(i + 0.35);
    }
    t->share_of[0] = 0;
    t->share_of[1] = UINT32_MAX;
    for (uint32_t i = 2; i <= TRIALS_MAX; ++i) t->share_of[i] = (uint32_t)((1ull << 32) / i);
}
