/* The `ngram-simple` source (drafting.md, section 3): what followed the most recent occurrence of
 * the last n tokens.
 *
 * Instead of searching backwards, every n-gram's most recent position is kept in a table, entered
 * once it lies far enough back to be a match, and found by the hash of the last n tokens. */
#include "source_grams.h"

typedef struct {
    lookup_source base;
    size_t n, m;
    window gram;
    place entered, pattern;
    slots latest; /* item: the n-gram's most recent position */
    size_t next;  /* positions below are in the table */
    size_t seen;
} simple_source;

void lookup_ngram_simple_defaults(lookup_ngram_simple_params *p) {
    if (p != NULL) *p = (lookup_ngram_simple_params){.size_n = 12, .size_m = 48};
}

/* The place of an n-gram, or the free one where it would stand. */
INLINE uint64_t *find(const simple_source *s, const int32_t *tokens, const int32_t *gram, uint32_t tag) {
    uint32_t at = slots_home(&s->latest, tag);
    for (; s->latest.at[at] != 0; at = slots_after(&s->latest, at)) {
        uint64_t slot = s->latest.at[at];
        if ((uint32_t)(slot >> 32) == tag && same_tokens(tokens + (uint32_t)slot, gram, s->n)) break;
    }
    return &s->latest.at[at];
}

/* Enters the positions below `end`. Position 0 never matches. */
static lookup_status enter(simple_source *s, const int32_t *tokens, size_t end) {
    for (; s->next < end; ++s->next) {
        TRY(slots_reserve(&s->latest, 1));
        uint32_t tag = tag_of(place_move(&s->gram, &s->entered, tokens, s->next));
        uint64_t *slot = find(s, tokens, tokens + s->next, tag);
        s->latest.used += *slot == 0;
        *slot = slot_of(tag, (uint32_t)s->next);
    }
    return LOOKUP_OK;
}

static lookup_status simple_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    simple_source *s = (simple_source *)source;
    slots_reset(&s->latest);
    s->entered.set = s->pattern.set = false;
    s->next = 1;
    s->seen = 0;
    TRY(history_extend(&s->seen, tokens, n));
    return n > s->n + 1 ? enter(s, tokens, n - s->n - 1) : LOOKUP_OK;
}

static lookup_status simple_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                                  uint8_t *tiers, size_t capacity, size_t *n_draft) {
    simple_source *s = (simple_source *)source;
    TRY(history_extend(&s->seen, tokens, n));
    if (n < s->n + s->m + 3) return LOOKUP_OK;
    size_t c = n - 1;
    TRY(enter(s, tokens, c - s->n)); /* matches start at c-n-1 or before */
    uint32_t tag = tag_of(place_move(&s->gram, &s->pattern, tokens, n - s->n));
    uint64_t slot = *find(s, tokens, tokens + (n - s->n), tag);
    if (slot == 0) return LOOKUP_OK;
    size_t from = (uint32_t)slot + s->n, copy = c - from;
    if (copy > s->m) copy = s->m;
    if (copy >= s->n) give_draft(tokens + from, copy, draft, tiers, capacity, n_draft);
    return LOOKUP_OK;
}

static lookup_status simple_accept(lookup_source *source, size_t n_accepted) {
    (void)source;
    (void)n_accepted; /* stateless: the next call's tokens say it all */
    return LOOKUP_OK;
}

static void simple_free(lookup_source *source) {
    simple_source *s = (simple_source *)source;
    lookup_free(s->latest.at);
    lookup_free(s);
}

static const source_calls CALLS = {simple_free, simple_begin, simple_draft, simple_accept, NULL};

lookup_status lookup_source_ngram_simple(const lookup_ngram_simple_params *params, lookup_source **source) {
    CHECK(params != NULL && source != NULL, LOOKUP_E_ARGUMENT);
    CHECK(within(params->size_n, 1, LOOKUP_MAX_GRAM) && within(params->size_m, 1, LOOKUP_MAX_GRAM), LOOKUP_E_ARGUMENT);
    simple_source *s = lookup_alloc(1, sizeof *s);
    CHECK(s != NULL, LOOKUP_E_MEMORY);
    s->base.calls = &CALLS;
    s->n = (size_t)params->size_n;
    s->m = (size_t)params->size_m;
    s->gram = window_of(GRAM_FACTOR, s->n);
    s->next = 1;
    *source = &s->base;
    return LOOKUP_OK;
}
