/* Groups and members of ngram-adaptive: see adaptive_group.c and adaptive_member.c. */
#ifndef LOOKUP_ADAPTIVE_GROUP_H
#define LOOKUP_ADAPTIVE_GROUP_H

#include "adaptive_estimate.h"
#include "adaptive_length.h"
#include "source.h"

typedef struct member member;

struct lookup_adaptive {
    lookup_adaptive_params params;
    adaptive_tables tables;
    learned *learned;
    learned *before;      /* what was learned before the text of `alone` */
    const member *alone;  /* the only member that learned since, or NULL */
    static_tier fixed;
    gram_tier dynamic;
    cost_curve curve;
    member *members;      /* all of them, by `next` */
    uint64_t n_members;
    member **batch;       /* of the draft at hand, and a heap of their indices */
    uint32_t *heap;
    size_t batch_capacity;
    double lately, paid;  /* tokens and costs of batches, of late */
    lookup_adaptive_counts counts;
    double cost[LOOKUP_MAX_DRAFT + 2]; /* by width, of the batch at hand */
    double from[LOOKUP_MAX_DRAFT + 1];
    float cut;                         /* chains end below this probability */
};

struct member {
    lookup_source base;
    lookup_adaptive *group;
    member *next;
    bool owns_group;
    bool in_batch;       /* since its text began */
    history text;
    size_t n, capacity;  /* tokens known; space for tokens */
    size_t remembered;   /* how many of them the dynamic tier has */
    gram_tier context;
    edit_memory edits;
    alignment state;
    estimator estimator;
    estimate first, further;
    bool estimated;      /* `first` is the estimate of the token to come */
    float p[LOOKUP_MAX_DRAFT];        /* the chain at hand */
    float reach[LOOKUP_MAX_DRAFT];    /* products of p: all tokens so far are right */
    int32_t chain[LOOKUP_MAX_DRAFT];
    size_t n_chain, n_draft;          /* its length; how much of it was drafted */
};

/* Learns every token of tokens[0..n) that is not known yet. */
lookup_status lookup_adaptive_catch_up(member *m, const int32_t *tokens, size_t n);
/* Finds the chain of likeliest tokens, at most `most`, as long as its probability is `cut` or more. */
lookup_status lookup_adaptive_chain(member *m, size_t most, float cut);
/* The member behind a source, or NULL if it is of another kind. */
member *lookup_adaptive_member(lookup_source *source);

/* The first `n` tokens of a member's text count as remembered. */
void lookup_adaptive_mark(lookup_source *source, size_t n);

#endif
