/* The `trace` source (drafting.md, section 3): plays back drafts that some other drafter made, so that
 * a trained head or a draft model can be put beside the n-gram sources. */
#include "source_grams.h"

typedef struct {
    lookup_source base;
    lookup_trace trace; /* borrowed arrays */
    uint64_t start;     /* the sequence's first token in the stream */
    size_t next;        /* the first draft at or behind the last position asked for */
    size_t seen;
} trace_source;

static lookup_status trace_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    trace_source *s = (trace_source *)source;
    s->next = s->seen = 0;
    return history_extend(&s->seen, tokens, n);
}

/* The first draft at or behind `position`, by bisection: a replay starts anywhere. */
static size_t find_draft(const lookup_trace *trace, uint64_t position) {
    size_t low = 0, high = trace->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace->positions[middle] < position) low = middle + 1;
        else high = middle;
    }
    return low;
}

static lookup_status trace_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                                 uint8_t *tiers, size_t capacity, size_t *n_draft) {
    trace_source *s = (trace_source *)source;
    TRY(history_extend(&s->seen, tokens, n));
    const lookup_trace *t = &s->trace;
    uint64_t position = s->start + n;
    if (s->next == 0) s->next = find_draft(t, position);
    while (s->next < t->n && t->positions[s->next] < position) s->next++;
    if (s->next == t->n || t->positions[s->next] != position) return LOOKUP_OK;
    uint64_t from = s->next ? t->ends[s->next - 1] : 0;
    give_draft(t->tokens + from, (size_t)(t->ends[s->next] - from), draft, tiers, capacity, n_draft);
    return LOOKUP_OK;
}

static lookup_status trace_accept(lookup_source *source, size_t n_accepted) {
    (void)source;
    (void)n_accepted; /* its drafts are made already */
    return LOOKUP_OK;
}

static void trace_free(lookup_source *source) { lookup_free(source); }

static const source_calls CALLS = {trace_free, trace_begin, trace_draft, trace_accept, NULL};

lookup_status lookup_source_trace(const lookup_trace *trace, lookup_source **source) {
    CHECK(trace != NULL && source != NULL, LOOKUP_E_ARGUMENT);
    CHECK(trace->n == 0 || (trace->positions && trace->ends && trace->tokens), LOOKUP_E_ARGUMENT);
    for (size_t i = 1; i < trace->n; ++i)
        CHECK(trace->positions[i - 1] < trace->positions[i] && trace->ends[i - 1] <= trace->ends[i], LOOKUP_E_ARGUMENT);
    for (uint64_t i = 0; trace->n > 0 && i < trace->ends[trace->n - 1]; ++i) CHECK(trace->tokens[i] >= 0, LOOKUP_E_TOKEN);
    trace_source *s = lookup_alloc(1, sizeof *s);
    CHECK(s != NULL, LOOKUP_E_MEMORY);
    s->base.calls = &CALLS;
    s->trace = *trace;
    *source = &s->base;
    return LOOKUP_OK;
}

lookup_status lookup_trace_seek(lookup_source *source, uint64_t start) {
    CHECK(source != NULL && source->calls == &CALLS, LOOKUP_E_ARGUMENT);
    ((trace_source *)source)->start = start;
    ((trace_source *)source)->next = 0;
    return LOOKUP_OK;
}
