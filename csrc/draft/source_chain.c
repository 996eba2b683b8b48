/* Several draft sources asked in turn (`--spec-type a,b`): the first non-empty draft wins. As in
 * llama.cpp the members behind it are not asked in that step, and only the member that made a draft
 * learns how much of it was accepted; what was said reaches the others with the next call's tokens. */
#include "source.h"

#define NOBODY (-1)

typedef struct {
    lookup_source base;
    lookup_source **members; /* borrowed, in a list of our own */
    lookup_chain_counts *counts; /* by member */
    size_t n_members;
    int32_t last; /* who made the last draft */
} chain_source;

static lookup_status chain_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    chain_source *s = (chain_source *)source;
    s->last = NOBODY;
    for (size_t i = 0; i < s->n_members; ++i) {
        s->counts[i].calls_begin++;
        TRY(s->members[i]->calls->begin(s->members[i], tokens, n));
    }
    return LOOKUP_OK;
}

static lookup_status chain_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                                 uint8_t *tiers, size_t capacity, size_t *n_draft) {
    chain_source *s = (chain_source *)source;
    s->last = NOBODY;
    for (size_t i = 0; i < s->n_members && *n_draft == 0; ++i) {
        lookup_chain_counts *counts = &s->counts[i];
        counts->calls_draft++;
        TRY(s->members[i]->calls->draft(s->members[i], tokens, n, draft, tiers, capacity, n_draft));
        if (*n_draft == 0) continue;
        s->last = (int32_t)i;
        counts->gen_drafts++;
        counts->gen_tokens += *n_draft;
    }
    return LOOKUP_OK;
}

static lookup_status chain_accept(lookup_source *source, size_t n_accepted) {
    chain_source *s = (chain_source *)source;
    if (s->last == NOBODY) return LOOKUP_OK;
    lookup_source *member = s->members[s->last];
    lookup_chain_counts *counts = &s->counts[s->last];
    counts->calls_accept++;
    counts->acc_drafts += n_accepted > 0;
    counts->acc_tokens += n_accepted;
    return member->calls->accept(member, n_accepted);
}

static lookup_status chain_truncate(lookup_source *source, const int32_t *tokens, size_t n) {
    chain_source *s = (chain_source *)source;
    s->last = NOBODY;
    for (size_t i = 0; i < s->n_members; ++i) TRY(lookup_source_truncate(s->members[i], tokens, n));
    return LOOKUP_OK;
}

static void chain_free(lookup_source *source) {
    chain_source *s = (chain_source *)source;
    lookup_free(s->members);
    lookup_free(s->counts);
    lookup_free(s);
}

static const source_calls CALLS = {chain_free, chain_begin, chain_draft, chain_accept, chain_truncate};

lookup_status lookup_source_chain(lookup_source *const *sources, size_t n, lookup_source **chain) {
    CHECK(sources != NULL && chain != NULL && n >= 1 && n <= LOOKUP_MAX_CHAIN, LOOKUP_E_ARGUMENT);
    for (size_t i = 0; i < n; ++i) CHECK(sources[i] != NULL, LOOKUP_E_ARGUMENT);
    chain_source *s = lookup_alloc(1, sizeof *s);
    CHECK(s != NULL, LOOKUP_E_MEMORY);
    s->base.calls = &CALLS;
    s->n_members = n;
    s->last = NOBODY;
    s->members = lookup_alloc(n, sizeof(lookup_source *));
    s->counts = lookup_alloc(n, sizeof *s->counts);
    if (s->members == NULL || s->counts == NULL) {
        chain_free(&s->base);
        return LOOKUP_E_MEMORY;
    }
    for (size_t i = 0; i < n; ++i) s->members[i] = sources[i];
    *chain = &s->base;
    return LOOKUP_OK;
}

lookup_status lookup_chain_last(const lookup_source *chain, int32_t *last) {
    CHECK(chain != NULL && last != NULL && chain->calls == &CALLS, LOOKUP_E_ARGUMENT);
    *last = ((const chain_source *)chain)->last;
    return LOOKUP_OK;
}

lookup_status lookup_chain_counters(const lookup_source *chain, size_t member, lookup_chain_counts *counts) {
    CHECK(chain != NULL && counts != NULL && chain->calls == &CALLS, LOOKUP_E_ARGUMENT);
    const chain_source *s = (const chain_source *)chain;
    CHECK(member < s->n_members, LOOKUP_E_ARGUMENT);
    *counts = s->counts[member];
    return LOOKUP_OK;
}
