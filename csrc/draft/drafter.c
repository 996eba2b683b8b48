/* Drafts for all sequences of an engine: follows their texts, asks the chain of sources, learns.
 *
 * An engine's history is the truth, whatever it did in between: each text is compared with what is
 * known of it. Sources take in what is new when they draft, so that a token which an engine takes
 * back at once costs nothing. */
#include "../core/table.h"
#include "drafter.h"

#define REFRESH 16   /* steps between two looks at what was measured */
#define A_TEXT 8     /* a text that loses fewer tokens goes on; one that loses more has ended */
#define OVERLAP 16   /* so many equal tokens make a shifted text known again */

void lookup_drafter_defaults(lookup_drafter_params *params) {
    if (params == NULL) return;
    lookup_adaptive_params adaptive;
    lookup_adaptive_defaults(&adaptive);
    *params = (lookup_drafter_params){.sources = "ngram-adaptive", .n_sequences = 1, .draft_max = adaptive.draft_max,
                                      .learn = 1, .measure = 1, .dynamic_bytes = adaptive.dynamic_bytes};
}

static lookup_status build(lookup_drafter *d, lookup_error *error) {
    size_t n = d->n_sequences;
    d->sequences = lookup_alloc(n, sizeof *d->sequences);
    d->batch = lookup_alloc(n, sizeof(lookup_source *));
    d->texts = lookup_alloc(n, sizeof(const int32_t *));
    d->lengths = lookup_alloc(4 * n, sizeof *d->lengths);
    d->drafts = lookup_alloc(n * (size_t)d->params.draft_max, sizeof *d->drafts);
    CHECK(d->sequences && d->batch && d->texts && d->lengths && d->drafts, LOOKUP_E_MEMORY);
    d->bounds = d->lengths + n;
    d->counts = d->lengths + 2 * n;
    d->places = d->lengths + 3 * n;
    TRY(lookup_cost_meter_new(&d->meter));
    lookup_budget_start(&d->budget);
    return lookup_drafter_make_sources(d, error);
}

/* Drafts follow what was measured so far. */
static lookup_status refresh_costs(lookup_drafter *d) {
    int32_t widths[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    double costs[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    size_t n;
    TRY(lookup_cost_meter_curve(d->meter, LOOKUP_COST_BOUND, widths, costs, &n));
    TRY(lookup_adaptive_curve(&d->budget.curve, widths, costs, n));
    if (d->group == NULL) return LOOKUP_OK;
    TRY(lookup_cost_meter_curve(d->meter, LOOKUP_COST_HOPED, widths, costs, &n));
    return lookup_adaptive_set_costs(d->group, widths, costs, n);
}

lookup_status lookup_drafter_new(const lookup_drafter_params *params, const lookup_static *cache, lookup_table *dynamic,
                                 lookup_drafter **drafter, lookup_error *error) {
    CHECK(params && drafter && params->sources, LOOKUP_E_ARGUMENT);
    if (params->n_sequences < 1 || params->draft_max < 1 || params->draft_max > LOOKUP_MAX_DRAFT || params->n_vocab < 0) {
        lookup_fail(error, "found %d sequences, drafts of %d tokens and %d ids, expected at least 1, 1 to %d and at least 0",
                    (int)params->n_sequences, (int)params->draft_max, (int)params->n_vocab, LOOKUP_MAX_DRAFT);
        return LOOKUP_E_ARGUMENT;
    }
    lookup_drafter *d = lookup_alloc(1, sizeof *d);
    lookup_status status = LOOKUP_E_MEMORY;
    if (d != NULL) {
        d->params = *params;
        d->cache = cache;
        d->dynamic = dynamic;
        d->n_sequences = (size_t)params->n_sequences;
        status = build(d, error);
        if (status == LOOKUP_OK && params->measure) status = refresh_costs(d);
        d->params.sources = NULL; /* the caller's */
    }
    if (status == LOOKUP_OK) {
        *drafter = d;
        return LOOKUP_OK;
    }
    if (status != LOOKUP_E_ARGUMENT) lookup_fail(error, "%s", lookup_strerror(status));
    lookup_drafter_free(d);
    return status;
}

void lookup_drafter_free(lookup_drafter *d) {
    if (d == NULL) return;
    lookup_drafter_free_sources(d);
    for (size_t i = 0; i < d->n_sequences && d->sequences != NULL; ++i) lookup_free(d->sequences[i].known);
    lookup_free(d->sequences);
    lookup_free(d->batch);
    lookup_free(d->texts);
    lookup_free(d->lengths);
    lookup_free(d->drafts);
    lookup_cost_meter_free(d->meter);
    lookup_free(d);
}

/* ---- texts */

static sequence *sequence_of(const lookup_drafter *d, int32_t id) {
    return d != NULL && id >= 0 && (size_t)id < d->n_sequences ? &d->sequences[id] : NULL;
}

static lookup_status append(sequence *q, const int32_t *tokens, size_t n) {
    if (n > q->capacity - q->n) {
        CHECK(n <= UINT32_MAX / 4 - q->n, LOOKUP_E_LIMIT);
        size_t capacity = q->n + n + q->n / 2 + 256;
        int32_t *known = lookup_realloc(q->known, capacity, sizeof *known);
        CHECK(known != NULL, LOOKUP_E_MEMORY);
        q->known = known;
        q->capacity = capacity;
    }
    if (n > 0) memcpy(q->known + q->n, tokens, n * sizeof *tokens);
    q->n += n;
    return LOOKUP_OK;
}

static uint64_t table_bytes(const lookup_table *t) {
    return t->capacity * (uint64_t)sizeof(node) + (sizeof(uint64_t) << t->slot_bits) + lookup_index_bytes(t->index);
}

static lookup_status learn_one(lookup_drafter *d, sequence *q) {
    size_t from = q->learned;
    if (from >= q->n) return LOOKUP_OK;
    q->learned = q->n; /* a second try would count twice */
    q->counts.n_learned += q->n - from;
    if (d->dynamic != NULL && table_bytes(d->dynamic) < d->params.dynamic_bytes) {
        lookup_table_end_stream(d->dynamic);
        TRY(lookup_table_update(d->dynamic, q->known + from, q->n - from));
        lookup_table_end_stream(d->dynamic);
    }
    if (d->adaptive == NOBODY || q->broken) return LOOKUP_OK;
    return lookup_adaptive_remember(q->sources[d->adaptive], q->known, q->n);
}

lookup_status lookup_drafter_learn(lookup_drafter *d) {
    CHECK(d != NULL, LOOKUP_E_ARGUMENT);
    lookup_status status = LOOKUP_OK;
    for (size_t i = 0; i < d->n_sequences && d->params.learn; ++i) {
        lookup_status one = learn_one(d, &d->sequences[i]);
        if (one == LOOKUP_OK) continue;
        d->sequences[i].broken = true;
        status = one;
    }
    return status;
}

static lookup_status begin_all(lookup_drafter *d, sequence *q) {
    q->broken = true;
    for (size_t k = 0; k < d->n_sources; ++k) TRY(lookup_source_begin(q->sources[k], q->known, q->n));
    if (d->adaptive != NOBODY) lookup_adaptive_mark(q->sources[d->adaptive], q->learned);
    q->broken = false;
    return LOOKUP_OK;
}

/* After tokens from the middle were taken out, the end of the old text follows: how many tokens behind
 * `same` have been in the old text, up to its end. */
static size_t shifted(const sequence *q, size_t same, const int32_t *tokens, size_t n) {
    if (n - same < OVERLAP) return 0;
    for (size_t at = same + 1; at + OVERLAP <= q->n; ++at) {
        size_t left = q->n - at, length = left < n - same ? left : n - same;
        if (q->known[at] == tokens[same] && lookup_common_prefix(q->known + at, tokens + same, length) == left) return left;
    }
    return 0;
}

/* What the last draft came to, where the engine did not say so. */
static void settle_unsaid(lookup_drafter *d, sequence *q, size_t same, const int32_t *tokens, size_t n) {
    if (q->n_draft == 0) return;
    size_t most = same == q->n && n > same ? n - same : 0;
    most = most < q->n_draft ? most : q->n_draft;
    size_t accepted = lookup_common_prefix(q->draft, tokens + same, most);
    q->n_draft = 0;
    q->counts.n_accepted += accepted;
    d->budget.said += accepted;
}

static lookup_status cut(lookup_drafter *d, sequence *q, size_t same, const int32_t *tokens, size_t n) {
    bool ended = q->n - same >= A_TEXT;
    size_t known = 0;
    if (ended) {
        known = shifted(q, same, tokens, n);
        TRY(lookup_drafter_learn(d));
    }
    bool other = ended && known == 0 && same < q->n / 2;
    q->counts.n_cut++;
    lookup_status status = LOOKUP_OK;
    for (size_t k = 0; k < d->n_sources && !other && status == LOOKUP_OK; ++k)
        status = lookup_source_truncate(q->sources[k], q->known, same);
    if (other || status != LOOKUP_OK) q->broken = true; /* all begin anew, with the new text */
    q->n = same;
    q->learned = q->learned < same ? q->learned : same;
    if (known > 0) q->learned = same + known;
    if (known > 0 && d->adaptive != NOBODY) lookup_adaptive_mark(q->sources[d->adaptive], same + known);
    return LOOKUP_OK;
}

lookup_status lookup_drafter_follow(lookup_drafter *d, int32_t id, const int32_t *tokens, size_t n, int32_t last) {
    sequence *q = sequence_of(d, id);
    CHECK(q != NULL && (n == 0 || tokens != NULL), LOOKUP_E_ARGUMENT);
    size_t same = lookup_common_prefix(q->known, tokens, q->n < n ? q->n : n);
    for (size_t i = same; i < n; ++i) CHECK(tokens[i] >= 0, LOOKUP_E_TOKEN);
    settle_unsaid(d, q, same, tokens, n);
    bool said = last >= 0 && same == n && q->n > n && q->known[n] == last;
    bool first = q->n == 0;
    if (same + said < q->n) TRY(cut(d, q, same + said, tokens, n));
    TRY(append(q, tokens + same, n - same));
    if (last >= 0 && !said) TRY(append(q, &last, 1));
    if (first && q->n > 0) q->broken = true; /* so that sources which look at begin() are told of it */
    return LOOKUP_OK;
}

lookup_status lookup_drafter_forget(lookup_drafter *d, int32_t id) {
    sequence *q = sequence_of(d, id);
    CHECK(q != NULL, LOOKUP_E_ARGUMENT);
    q->n = q->learned = q->n_draft = 0;
    return begin_all(d, q);
}

lookup_status lookup_drafter_accept(lookup_drafter *d, int32_t id, size_t n_accepted) {
    sequence *q = sequence_of(d, id);
    CHECK(q != NULL, LOOKUP_E_ARGUMENT);
    size_t n = n_accepted < q->n_draft ? n_accepted : q->n_draft;
    if (q->n_draft == 0) return LOOKUP_OK;
    q->n_draft = 0;
    q->counts.n_accepted += n;
    d->budget.said += n;
    lookup_status status = lookup_source_accept(q->sources[q->last], n);
    if (status != LOOKUP_OK) q->broken = true;
    return append(q, q->draft, n);
}

/* ---- drafts */

static size_t bound_of(const lookup_drafter *d, size_t capacity, size_t stride) {
    size_t most = (size_t)d->params.draft_max;
    most = capacity < most ? capacity : most;
    return stride < most ? stride : most;
}

static lookup_status ask_one(sequence *q, size_t k, size_t bound, int32_t *draft, size_t *n_draft) {
    if (bound == 0) return LOOKUP_OK;
    return lookup_source_draft(q->sources[k], q->known, q->n, draft, NULL, bound, n_draft);
}

/* ngram-adaptive, for all whom nobody before it had a draft for. */
static lookup_status ask_group(lookup_drafter *d, const int32_t *ids, const size_t *capacity, size_t n, size_t n_others,
                               int32_t *drafts, size_t stride, size_t *n_drafts) {
    size_t asked = 0, others = n_others, most = (size_t)d->params.draft_max;
    for (size_t i = 0; i < n; ++i) {
        sequence *q = &d->sequences[ids[i]];
        if (n_drafts[i] > 0 || q->n == 0) {
            others += 1 + n_drafts[i];
            continue;
        }
        d->batch[asked] = q->sources[d->adaptive];
        d->texts[asked] = q->known;
        d->lengths[asked] = q->n;
        d->bounds[asked] = bound_of(d, capacity[i], stride);
        d->places[asked++] = i;
    }
    if (asked == 0) return LOOKUP_OK;
    TRY(lookup_adaptive_draft(d->group, d->batch, d->texts, d->lengths, d->bounds, asked, others, d->drafts, most, d->counts));
    for (size_t j = 0; j < asked; ++j) {
        size_t i = d->places[j];
        n_drafts[i] = d->counts[j];
        if (n_drafts[i] > 0) memcpy(drafts + i * stride, d->drafts + j * most, n_drafts[i] * sizeof *drafts);
        d->sequences[ids[i]].last = d->adaptive;
    }
    return LOOKUP_OK;
}

static lookup_status ask_all(lookup_drafter *d, const int32_t *ids, const size_t *capacity, size_t n, size_t n_others,
                             int32_t *drafts, size_t stride, size_t *n_drafts) {
    for (size_t i = 0; i < n; ++i)
        if (d->sequences[ids[i]].broken) TRY(begin_all(d, &d->sequences[ids[i]]));
    for (size_t k = 0; k < d->n_sources; ++k) {
        if ((int)k == d->adaptive) {
            TRY(ask_group(d, ids, capacity, n, n_others, drafts, stride, n_drafts));
            continue;
        }
        for (size_t i = 0; i < n; ++i) {
            if (n_drafts[i] > 0) continue;
            d->sequences[ids[i]].last = (int)k;
            TRY(ask_one(&d->sequences[ids[i]], k, bound_of(d, capacity[i], stride), drafts + i * stride, &n_drafts[i]));
        }
    }
    return LOOKUP_OK;
}

/* A draft ends before an id that the engine does not have: a foreign cache may hold any. */
static void crop(const lookup_drafter *d, const int32_t *draft, size_t *n_draft) {
    for (size_t i = 0; i < *n_draft && d->params.n_vocab > 0; ++i)
        if (draft[i] >= d->params.n_vocab) *n_draft = i;
}

static void note_drafts(lookup_drafter *d, const int32_t *ids, size_t n, const int32_t *drafts, size_t stride, const size_t *n_drafts) {
    for (size_t i = 0; i < n; ++i) {
        sequence *q = &d->sequences[ids[i]];
        q->n_draft = n_drafts[i];
        if (q->n_draft > 0) memcpy(q->draft, drafts + i * stride, q->n_draft * sizeof *drafts);
        q->counts.n_asked++;
        q->counts.n_drafts += q->n_draft > 0;
        q->counts.n_drafted += q->n_draft;
        d->width += q->n_draft;
    }
}

static lookup_status start_step(lookup_drafter *d, const int32_t *ids, size_t n, size_t *n_drafts) {
    ++d->n_steps;
    for (size_t i = 0; i < n; ++i) {
        sequence *q = sequence_of(d, ids[i]);
        CHECK(q != NULL && q->step != d->n_steps, LOOKUP_E_ARGUMENT);
        q->step = d->n_steps;
        n_drafts[i] = q->n_draft = 0;
    }
    lookup_budget_settle(&d->budget);
    return LOOKUP_OK;
}

lookup_status lookup_drafter_draft(lookup_drafter *d, const int32_t *ids, const size_t *capacity, size_t n, size_t n_others,
                                   int32_t *drafts, size_t stride, size_t *n_drafts) {
    CHECK(d != NULL && n <= d->n_sequences, LOOKUP_E_ARGUMENT);
    CHECK(n == 0 || (ids && capacity && n_drafts && drafts), LOOKUP_E_ARGUMENT);
    TRY(start_step(d, ids, n, n_drafts));
    lookup_status status = ask_all(d, ids, capacity, n, n_others, drafts, stride, n_drafts);
    if (status != LOOKUP_OK) {
        ++d->n_failed;
        for (size_t i = 0; i < n; ++i) {
            d->sequences[ids[i]].broken = true;
            n_drafts[i] = 0;
        }
        return status;
    }
    for (size_t i = 0; i < n; ++i) crop(d, drafts + i * stride, &n_drafts[i]);
    d->width = n + n_others;
    if (d->params.measure && n > 0)
        d->held_back += lookup_budget_limit(&d->budget, d->width, n, (size_t)d->params.draft_max, n_drafts);
    note_drafts(d, ids, n, drafts, stride, n_drafts);
    return LOOKUP_OK;
}

lookup_status lookup_drafter_decoded(lookup_drafter *d, size_t width, double seconds) {
    CHECK(d != NULL, LOOKUP_E_ARGUMENT);
    bool same = width == d->width && width > 0 && width <= INT32_MAX;
    d->width = 0;
    if (!same) return LOOKUP_OK;
    TRY(lookup_cost_meter_observe(d->meter, (int32_t)width, seconds));
    if (!d->params.measure || (d->n_steps > REFRESH && d->n_steps % REFRESH != 0)) return LOOKUP_OK;
    return refresh_costs(d);
}

/* ---- what is inside */

lookup_adaptive *lookup_drafter_group(lookup_drafter *d) { return d != NULL ? d->group : NULL; }

const lookup_cost_meter *lookup_drafter_meter(const lookup_drafter *d) { return d != NULL ? d->meter : NULL; }

lookup_status lookup_drafter_counters(const lookup_drafter *d, int32_t id, lookup_drafter_counts *counts) {
    CHECK(d != NULL && counts != NULL && (id == -1 || sequence_of(d, id) != NULL), LOOKUP_E_ARGUMENT);
    lookup_drafter_counts sum = {0};
    for (size_t i = 0; i < d->n_sequences; ++i) {
        const lookup_drafter_counts *c = &d->sequences[i].counts;
        if (id != -1 && (size_t)id != i) continue;
        sum.n_asked += c->n_asked;
        sum.n_drafts += c->n_drafts;
        sum.n_drafted += c->n_drafted;
        sum.n_accepted += c->n_accepted;
        sum.n_learned += c->n_learned;
        sum.n_cut += c->n_cut;
    }
    if (id == -1) {
        sum.n_steps = d->n_steps;
        sum.n_failed = d->n_failed;
        sum.held_back = d->held_back;
    }
    *counts = sum;
    return LOOKUP_OK;
}
