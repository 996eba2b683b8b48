/* What ngram-adaptive learns: see adaptive_learned.c. */
#ifndef LOOKUP_ADAPTIVE_LEARNED_H
#define LOOKUP_ADAPTIVE_LEARNED_H

#include "adaptive_grams.h"
#include "adaptive_math.h"

/* Inputs of the mixing: two for each order of context and dynamic tier and for the static 2-grams
 * (learned rate, raw odds), those of alignments, and a constant. */
#define KIND_DYNAMIC N_ORDERS
#define KIND_STATIC (2 * N_ORDERS)
#define N_KINDS (KIND_STATIC + 1)
#define INPUT_EXACT (2 * N_KINDS)
#define INPUT_EXACT_NOT (INPUT_EXACT + 1)
#define INPUT_COME (INPUT_EXACT + 2)
#define INPUT_CAME (INPUT_EXACT + 3)
#define INPUT_ALIGNED (INPUT_EXACT + 4)
#define INPUT_ALIGNED_NOT (INPUT_EXACT + 5)
#define INPUT_ALIGNED_COME (INPUT_EXACT + 6)
#define INPUT_EDIT (INPUT_EXACT + 7) /* four: two kinds of edits, proposed or not */
#define INPUT_ONE (INPUT_EXACT + 11)
#define N_INPUTS 48

#define N_TOTALS 12 /* steps of an n-gram's total */
#define N_SHARES 24 /* steps of a candidate's odds */
#define N_RUNS 4
#define N_DEPTHS (N_ORDERS + 1)
#define N_MODES 24   /* of an alignment: none, broken for 1 to 7 tokens, 16 steps of length */
#define N_LENGTHS 20 /* steps of an exact match's length */
#define N_STEPS 33   /* of the last correction, over z in [-8, 8] */
#define TOKEN_RATE_BITS 16
#define TOKEN_BIAS_BITS 18

/* A running mean whose trials may be parts of one. */
typedef struct {
    float p, n;
} mean;

typedef struct {
    /* What holds for any text. */
    float by_match[N_DEPTHS][N_DEPTHS][2][N_INPUTS]; /* longest matches: context, dynamic, static */
    float by_support[N_DEPTHS][N_DEPTHS][N_INPUTS];  /* longest n-grams that knew the candidate */
    float by_evidence[N_TOTALS * N_RUNS + 1][N_INPUTS]; /* counts of the longest match */
    float by_alignment[N_MODES][2][2][N_INPUTS];     /* its mode; is the candidate what it says? */
    float level[N_DEPTHS + 7];                       /* fast bias by depth: another text has begun */
    float recent[16][16][16];                        /* bias by hits of late and depth */
    mean corrections[N_DEPTHS][N_STEPS];
    mean aligned_corrections[N_MODES][3][N_STEPS];
    rate grams[N_KINDS][N_TOTALS][N_SHARES][N_RUNS];
    rate exact[N_LENGTHS][2][2];
    rate aligned[N_MODES][4][2][9][4];
    rate edited[5][4][2][2];
    uint64_t tokens; /* observations */
    /* What belongs to single tokens, by hash. */
    rate come[1 << TOKEN_RATE_BITS], came[1 << TOKEN_RATE_BITS], aligned_come[1 << TOKEN_RATE_BITS];
    float said[1 << TOKEN_BIAS_BITS], after[1 << TOKEN_BIAS_BITS];
} learned;

/* As before any text. */
void lookup_adaptive_learned_init(learned *k, const adaptive_tables *t);

INLINE uint32_t token_slot(int32_t token, uint32_t classes, uint32_t class, int bits) {
    return ((uint32_t)token * classes + class) * 2654435761u >> (32 - bits);
}

#endif
