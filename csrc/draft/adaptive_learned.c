/* What ngram-adaptive learns: weights that mix evidence, rates at which evidence of each kind turned
 * out right, biases, corrections.
 *
 * The first values say little: n-grams are worth a little each, alignments nothing, and an estimate
 * is doubted. A prior (adaptive_state.c) takes their place where one is loaded. */
#include "adaptive_learned.h"

#define FIRST_WEIGHT 0.15f
#define FIRST_DOUBT (-1.25f)

void lookup_adaptive_learned_init(learned *k, const adaptive_tables *t) {
    memset(k, 0, sizeof *k);
    float *row = &k->by_match[0][0][0][0];
    for (size_t i = 0; i < sizeof k->by_match / sizeof *row; ++i)
        row[i] = i % N_INPUTS == INPUT_ONE ? FIRST_DOUBT : i % N_INPUTS < INPUT_ONE ? FIRST_WEIGHT : 0;
    for (size_t i = 0; i < N_STEPS; ++i) {
        float p = t->squash[i * (SQUASH_STEPS / (N_STEPS - 1))];
        for (size_t d = 0; d < N_DEPTHS; ++d) k->corrections[d][i].p = p;
        for (size_t m = 0; m < N_MODES * 3; ++m) k->aligned_corrections[m / 3][m % 3][i].p = p;
    }
}
