/* A drafter for all sequences of an engine: drafter.c follows and drafts, drafter_sources.c makes sources
 * by name, drafter_budget.c holds drafts back that do not pay. */
#ifndef LOOKUP_DRAFTER_H
#define LOOKUP_DRAFTER_H

#include "adaptive_group.h"

#define MOST_SOURCES 8
#define NOBODY (-1)

typedef struct {
    lookup_source *sources[MOST_SOURCES]; /* in the order asked */
    int32_t *known;                       /* its text */
    size_t n, capacity;
    size_t learned;    /* how much of the text was learned */
    bool broken;       /* a source failed: all begin anew */
    int last;          /* whose draft it was */
    int32_t draft[LOOKUP_MAX_DRAFT];
    size_t n_draft;    /* of the last step, until it is known what became of it */
    uint64_t step;     /* the last one that it was in */
    lookup_drafter_counts counts;
} sequence;

/* What drafts have won of late, in tokens: see drafter_budget.c. */
typedef struct {
    cost_curve curve;  /* what drafts are trusted not to exceed */
    double balance;
    double stake;      /* of the step under way */
    double full;       /* what the balance may hold after it */
    size_t said;       /* tokens of it so far that the engine got */
    bool open;
} budget;

struct lookup_drafter {
    lookup_drafter_params params;
    const lookup_static *cache;
    lookup_table *dynamic;
    lookup_adaptive *group;
    lookup_cost_meter *meter;
    sequence *sequences;
    size_t n_sequences, n_sources;
    int adaptive;      /* place of ngram-adaptive in the chain, or NOBODY */
    budget budget;
    size_t width;      /* of the step under way, 0 if its time is known */
    uint64_t n_steps, n_failed, held_back;
    /* What lookup_adaptive_draft is given for a part of a batch. */
    lookup_source **batch;
    const int32_t **texts;
    size_t *lengths, *bounds, *counts, *places;
    int32_t *drafts;
};

/* The chain of sources that params.sources names, for every sequence. */
lookup_status lookup_drafter_make_sources(lookup_drafter *d, lookup_error *error);
void lookup_drafter_free_sources(lookup_drafter *d);

void lookup_budget_start(budget *b);
/* The step under way has ended. */
void lookup_budget_settle(budget *b);
/* Shortens the drafts of a batch of `width` tokens without them until the balance could pay for them;
 * returns how many tokens that took. */
size_t lookup_budget_limit(budget *b, size_t width, size_t n, size_t most, size_t *n_drafts);

#endif
