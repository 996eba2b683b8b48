/* The public calls of `ngram-adaptive`, until they are part of lookup.cdef.h. */
#ifndef LOOKUP_ADAPTIVE_H
#define LOOKUP_ADAPTIVE_H

#include "../lookup.h"

/* ---------------------------------------------------------------- ngram-adaptive (adaptive_*.c)
 *
 * Drafts as many tokens as pay: for each token it could draft it estimates the probability that the
 * model will say it, from n-grams of many orders in three tiers and from alignments with earlier
 * text, and weighs that against what verifying one more token costs.
 *
 * A group holds what its members share: the static cache (borrowed), the dynamic tier (earlier
 * texts, bounded), what was learned, and the cost curve. A member is a lookup_source for one
 * sequence. Members of one group are used from one thread at a time; groups are independent. */
typedef struct lookup_adaptive lookup_adaptive;

#define LOOKUP_ADAPTIVE_BINS 10
#define LOOKUP_ADAPTIVE_MAX_WIDTHS 256

typedef struct lookup_adaptive_params {
    int32_t draft_max;       /* largest draft, 1..LOOKUP_MAX_DRAFT; 16 at first */
    uint64_t dynamic_bytes;  /* bound of the dynamic tier; 0: none */
} lookup_adaptive_params;

void lookup_adaptive_defaults(lookup_adaptive_params *params);
/* `static_cache` is borrowed (as `tables` of other sources are) and may be NULL; `dynamic`, a dynamic
 * cache of earlier texts, may be NULL and is only read during this call. The group knows the
 * `dense` curve of the documents until lookup_adaptive_set_costs. E_ARGUMENT, E_MEMORY. */
lookup_status lookup_adaptive_new(const lookup_adaptive_params *params, const lookup_static *static_cache, const lookup_table *dynamic, lookup_adaptive **group);
/* Members first, then the group. Takes NULL. */
void lookup_adaptive_free(lookup_adaptive *group);
/* A further member: free it with lookup_source_free. Any number, at any time. */
lookup_status lookup_adaptive_join(lookup_adaptive *group, lookup_source **member);
/* A source with a group of its own, which lookup_source_free frees, too. */
lookup_status lookup_source_ngram_adaptive(const lookup_adaptive_params *params, const lookup_static *static_cache, const lookup_table *dynamic, lookup_source **source);
/* The group of a member; it stays the source's. E_ARGUMENT if `source` is of another kind. */
lookup_status lookup_adaptive_of(lookup_source *source, lookup_adaptive **group);

/* What verifying a batch of widths[i] tokens costs, in plain decodes of one token: widths ascend from
 * 1, costs are finite and positive; linear between two points and on beyond the last. Takes effect
 * with the next draft; nothing that was learned depends on it. E_ARGUMENT. */
lookup_status lookup_adaptive_set_costs(lookup_adaptive *group, const int32_t *widths, const double *costs, size_t n);

/* One draft for every member of the next batch. Member i has tokens[i][0..n[i]) as its history and
 * may draft up to capacity[i] tokens, which go to drafts + i * stride. `n_others` tokens of the batch
 * belong to requests outside (0 if there are none). Every n_drafts[i] is written. The lengths are
 * chosen together: the batch's cost is that of all its tokens. With one member this is
 * lookup_source_draft. After a failure, begin() the members anew. */
lookup_status lookup_adaptive_draft(lookup_adaptive *group, lookup_source *const *members, const int32_t *const *tokens, const size_t *n, const size_t *capacity, size_t n_members, size_t n_others, int32_t *drafts, size_t stride, size_t *n_drafts);
/* The member's text has ended: the tokens seen so far go into the dynamic tier, and the context is
 * empty, as after begin() with nothing. (begin() alone forgets the text.) What tokens[0..n) has
 * beyond the last draft's history is seen first. */
lookup_status lookup_adaptive_end(lookup_source *member, const int32_t *tokens, size_t n);
/* Forgets what was learned and the dynamic tier, loaded ones included; begin() the members anew. */
lookup_status lookup_adaptive_reset(lookup_adaptive *group);

/* What drafted tokens were said to be worth and what became of them. A token counts once its
 * predecessors were all accepted; `predicted` sums probabilities in units of 1/65536. */
typedef struct lookup_adaptive_counts {
    uint64_t trials[LOOKUP_ADAPTIVE_BINS];    /* by predicted probability, [0, 0.1) first */
    uint64_t predicted[LOOKUP_ADAPTIVE_BINS];
    uint64_t accepted[LOOKUP_ADAPTIVE_BINS];
    uint64_t drafted_length[LOOKUP_MAX_DRAFT + 1]; /* drafts by length, empty ones included */
    uint64_t dynamic_bytes;    /* held by the dynamic tier now */
    uint64_t context_bytes;    /* held by all members now, their texts included */
    uint64_t learned_tokens;   /* observations so far, loaded ones included */
} lookup_adaptive_counts;

/* Since the group was made or cleared. The mean gap is the mean of |predicted - accepted| / trials
 * over bins with enough trials. */
lookup_status lookup_adaptive_counters(const lookup_adaptive *group, lookup_adaptive_counts *counts);
lookup_status lookup_adaptive_clear_counters(lookup_adaptive *group);

/* What was learned as bytes: versioned, with checksum, the same on every machine.
 * `kind` LOOKUP_STATE_PRIOR: rates and weights only, without what belongs to single tokens (below
 * 64 KB); LOOKUP_STATE_LEARNED: everything learned. `vocabulary` is stored as it is given. */
#define LOOKUP_STATE_PRIOR 0
#define LOOKUP_STATE_LEARNED 1

typedef struct lookup_adaptive_state_info {
    uint32_t version;
    int32_t kind;
    uint64_t vocabulary;      /* fingerprint, 0 if none was given */
    uint64_t learned_tokens;
    uint64_t bytes;
} lookup_adaptive_state_info;

lookup_status lookup_adaptive_state_size(const lookup_adaptive *group, int32_t kind, size_t *size);
lookup_status lookup_adaptive_state_save(const lookup_adaptive *group, int32_t kind, uint64_t vocabulary, void *out, size_t size);
/* Checks all of it. E_MAGIC, E_GEOMETRY (another version), E_TRUNCATED, E_CHECKSUM. */
lookup_status lookup_adaptive_state_check(const void *data, size_t size, lookup_adaptive_state_info *info);
/* Replaces what was learned by a state's; trials beyond `cap` count as `cap` (40 suits a prior that
 * is to be corrected quickly; 0: as saved). Nothing changes on failure. */
lookup_status lookup_adaptive_state_load(lookup_adaptive *group, const void *data, size_t size, int32_t cap);

#endif
