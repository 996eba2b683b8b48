/* How each family of vocabularies splits text: steps, one after the other on the pieces that the
 * last one left, matches and what lies between them alike (llama.cpp: llm_tokenizer_bpe). */
#ifndef LOOKUP_RULES_H
#define LOOKUP_RULES_H

#include "tokenize.h"

typedef enum {
    DONE,
    RUNS,   /* [set]{1,max} */
    SPACED, /* \s?[set]+ */
    TAIL,   /* \s+$ */
    TRIPLE, /* [0-9][0-9][0-9] */
    GPT2,
    WORDS,   /* the pattern of Llama 3 and Qwen, numbers of up to max digits */
    CASED,   /* that of GPT-4o and Tekken: capitals, then small letters */
    MARKED,  /* that of DeepSeek V3: letters with marks, a sign before letters */
    BLOOM,   /* ` ?[^\s and SET1]+` */
    LINES,   /* [^\n]+|[\n]+ */
    GROUPS,  /* numbers in threes from the right */
    JOINED,  /* no pattern: cut where no token spans two characters */
} step_kind;

enum {
    SHORTENED = 1, /* 's, 're and the like stand alone (CASED: behind a word) */
    TRAILING = 2,  /* signs take the line ends behind them */
    MARKS = 4,     /* letters are letters and marks */
    ONE_CASE = 8,  /* every letter is both a capital and a small one */
};

typedef struct {
    uint8_t kind, options;
    uint16_t set;
    uint32_t max;
} step;

typedef struct {
    uint32_t first, last;
} range;

struct rules {
    const char *family;
    scheme scheme;
    const range *sets[3]; /* which SET1 to SET3 are */
    step steps[7];
};

#endif
