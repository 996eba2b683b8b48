/* Several requests at once: every step verifies one batch that holds each request's last token and
 * its draft. Each lane replays one chunk after the other; the replay ends when no chunk is left for
 * a lane that needs one, so that all lanes take part in every step. */
#include "../core/table.h"
#include "source.h"

typedef struct {
    lookup_source *source;
    const int32_t *text; /* the chunk */
    size_t known, n_draft;
    int32_t *draft;
} lane;

struct lookup_lockstep {
    lookup_lockstep_params given;
    size_t next_chunk;
    bool over;
    uint8_t *tiers;
    int32_t *drafts; /* draft_max for each lane */
    const int32_t **texts;
    size_t *lengths, *capacities, *n_drafts; /* by lane, for a group */
    lane lanes[];
};

void lookup_lockstep_free(lookup_lockstep *l) {
    if (l == NULL) return;
    lookup_free(l->tiers);
    lookup_free(l->drafts);
    lookup_free(l->texts);
    lookup_free(l->lengths);
    lookup_free(l);
}

/* Gives a lane the next chunk; false if there is none. */
static lookup_status begin(lookup_lockstep *l, lane *x, bool *begun) {
    const lookup_lockstep_params *g = &l->given;
    *begun = l->next_chunk < g->n_chunks;
    if (!*begun) return LOOKUP_OK;
    x->text = g->tokens + l->next_chunk++ * g->n_ctx;
    x->known = g->n_prompt + 1;
    return x->source->calls->begin(x->source, x->text, g->n_prompt);
}

lookup_status lookup_lockstep_new(lookup_lockstep **lockstep, const lookup_lockstep_params *params) {
    CHECK(lockstep != NULL && params != NULL && params->sources != NULL && params->tokens != NULL, LOOKUP_E_ARGUMENT);
    CHECK(params->n_lanes >= 1 && params->n_lanes <= params->n_chunks, LOOKUP_E_ARGUMENT);
    CHECK(params->n_lanes <= LOOKUP_MAX_LANES && params->n_prompt < params->n_ctx, LOOKUP_E_ARGUMENT);
    CHECK(params->draft_max >= 1 && params->draft_max <= LOOKUP_MAX_DRAFT, LOOKUP_E_ARGUMENT);
    lookup_lockstep *l = lookup_alloc(1, sizeof *l + params->n_lanes * sizeof *l->lanes);
    CHECK(l != NULL, LOOKUP_E_MEMORY);
    l->given = *params;
    l->tiers = lookup_alloc(params->draft_max, 1);
    l->drafts = lookup_alloc(params->n_lanes * params->draft_max, sizeof *l->drafts);
    l->texts = lookup_alloc(params->n_lanes, sizeof *l->texts);
    l->lengths = lookup_alloc(3 * params->n_lanes, sizeof *l->lengths);
    lookup_status status = l->tiers && l->drafts && l->texts && l->lengths ? LOOKUP_OK : LOOKUP_E_MEMORY;
    l->capacities = l->lengths + params->n_lanes;
    l->n_drafts = l->lengths + 2 * params->n_lanes;
    for (size_t i = 0; i < params->n_lanes && status == LOOKUP_OK; ++i) {
        bool begun;
        l->lanes[i].source = params->sources[i];
        l->lanes[i].draft = l->drafts + i * params->draft_max;
        status = begin(l, &l->lanes[i], &begun);
    }
    if (status != LOOKUP_OK) {
        lookup_lockstep_free(l);
        return status;
    }
    *lockstep = l;
    return LOOKUP_OK;
}

/* Members of a group choose their lengths together. */
static lookup_status draft_together(lookup_lockstep *l) {
    const lookup_lockstep_params *g = &l->given;
    for (size_t i = 0; i < g->n_lanes; ++i) {
        l->texts[i] = l->lanes[i].text;
        l->lengths[i] = l->lanes[i].known;
        l->capacities[i] = g->draft_max;
    }
    TRY(lookup_adaptive_draft(g->group, g->sources, l->texts, l->lengths, l->capacities, g->n_lanes, 0, l->drafts,
                              g->draft_max, l->n_drafts));
    for (size_t i = 0; i < g->n_lanes; ++i) l->lanes[i].n_draft = l->n_drafts[i];
    return LOOKUP_OK;
}

static lookup_status draft_all(lookup_lockstep *l) {
    if (l->given.group != NULL) return draft_together(l);
    for (size_t i = 0; i < l->given.n_lanes; ++i) {
        lane *x = &l->lanes[i];
        x->n_draft = 0;
        TRY(x->source->calls->draft(x->source, x->text, x->known, x->draft, l->tiers, l->given.draft_max, &x->n_draft));
    }
    return LOOKUP_OK;
}

/* What the text says of a lane's draft, and the token behind it. */
static lookup_status verify(lookup_lockstep *l, lane *x, lookup_lockstep_stats *stats) {
    size_t n_ctx = l->given.n_ctx, accepted = 0, before = x->known;
    while (accepted < x->n_draft && x->known < n_ctx && x->draft[accepted] == x->text[x->known]) {
        ++accepted;
        ++x->known;
    }
    if (x->n_draft > 0) TRY(x->source->calls->accept(x->source, accepted));
    x->known += x->known < n_ctx;
    stats->n_drafted += x->n_draft;
    stats->n_accept += accepted;
    stats->n_produced += x->known - before;
    return LOOKUP_OK;
}

/* The lane's chunk is replayed: the dynamic cache learns it, and the next one begins. */
static lookup_status finish(lookup_lockstep *l, lane *x) {
    bool begun;
    if (l->given.group != NULL) TRY(lookup_adaptive_end(x->source, x->text, l->given.n_ctx));
    if (l->given.dynamic != NULL) {
        TRY(lookup_table_update(l->given.dynamic, x->text, l->given.n_ctx));
        lookup_table_end_stream(l->given.dynamic);
    }
    TRY(begin(l, x, &begun));
    l->over |= !begun;
    return LOOKUP_OK;
}

lookup_status lookup_lockstep_run(lookup_lockstep *l, size_t n_steps, uint64_t *widths, lookup_lockstep_stats *stats, int32_t *over) {
    CHECK(l != NULL && widths != NULL && stats != NULL && over != NULL, LOOKUP_E_ARGUMENT);
    for (size_t step = 0; step < n_steps && !l->over; ++step) {
        size_t width = l->given.n_lanes;
        TRY(draft_all(l));
        for (size_t i = 0; i < l->given.n_lanes; ++i) {
            width += l->lanes[i].n_draft;
            TRY(verify(l, &l->lanes[i], stats));
        }
        widths[width]++;
        stats->n_steps++;
        for (size_t i = 0; i < l->given.n_lanes && !l->over; ++i)
            if (l->lanes[i].known >= l->given.n_ctx) TRY(finish(l, &l->lanes[i]));
    }
    *over = l->over;
    return LOOKUP_OK;
}
