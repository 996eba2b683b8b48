/* A group of ngram-adaptive: what its members share. How they share the batch: adaptive_share.c. */
#include "adaptive_group.h"

#include "../core/table.h"

#define DYNAMIC_BYTES (256ull << 20)
#define DRAFT_MAX 16
#define LEAST_REACH 0.004 /* chains that are less likely cannot pay */
#define BYTES_A_GRAM 36u  /* the n-gram and up to 12 bytes of places */
#define TOKENS_A_BYTE 128u

void lookup_adaptive_defaults(lookup_adaptive_params *params) {
    if (params != NULL) *params = (lookup_adaptive_params){.draft_max = DRAFT_MAX, .dynamic_bytes = DYNAMIC_BYTES};
}

/* The documents' example of an engine that reads all weights for every batch. */
static void dense(cost_curve *curve) {
    static const int32_t widths[] = {1, 2, 4, 8, 16, 32, 64};
    static const double costs[] = {1, 1.03, 1.08, 1.18, 1.4, 1.9, 3};
    (void)lookup_adaptive_curve(curve, widths, costs, sizeof widths / sizeof *widths);
}

static void costs_from(lookup_adaptive *g, size_t width) {
    size_t most = (size_t)g->params.draft_max;
    double least = 1;
    for (size_t k = 0; k <= most; ++k) {
        g->cost[k + 1] = lookup_adaptive_cost(&g->curve, width + k);
        if (k > 0 && g->cost[k + 1] - g->cost[k] < least) least = g->cost[k + 1] - g->cost[k];
    }
    g->cut = (float)(least > LEAST_REACH ? least : LEAST_REACH);
}

static lookup_status import_gram(gram_tier *t, const lookup_table *table, uint32_t id) {
    const node *n = &table->nodes[id];
    int32_t tokens[STATES], followers[2] = {NO_TOKEN, NO_TOKEN};
    uint32_t counts[2] = {0, 0};
    int length = lookup_table_path(table, id, tokens);
    if (n->total == 0 || length < 1 || length > LOOKUP_MAX_ORDER) return LOOKUP_OK;
    for (uint32_t f = n->first; f != ROOT; f = table->nodes[f].next) {
        uint32_t count = table->nodes[f].count;
        int32_t token = (int32_t)table->nodes[f].token;
        int place = count > counts[0] || (count == counts[0] && token < followers[0]) ? 0 : 1;
        if (place == 1 && (count < counts[1] || (count == counts[1] && token > followers[1]))) continue;
        if (place == 0) {
            counts[1] = counts[0];
            followers[1] = followers[0];
        }
        counts[place] = count;
        followers[place] = token;
    }
    return lookup_adaptive_import(t, tokens, length - 1, n->total, followers, counts);
}

static lookup_status import_table(gram_tier *t, const lookup_table *table) {
    for (uint32_t id = 1; table != NULL && id < table->n_nodes; ++id) TRY(import_gram(t, table, id));
    return LOOKUP_OK;
}

static lookup_status new_dynamic(lookup_adaptive *g) {
    uint64_t bytes = g->params.dynamic_bytes;
    uint32_t ring = 1024;
    while (ring < 1u << 30 && 2ull * ring <= bytes / TOKENS_A_BYTE) ring *= 2;
    uint64_t limit = bytes > 4ull * ring ? (bytes - 4ull * ring) / BYTES_A_GRAM : 0;
    limit = limit < 1024 ? 1024 : limit < LOOKUP_ADAPTIVE_MOST_GRAMS ? limit : LOOKUP_ADAPTIVE_MOST_GRAMS;
    return lookup_adaptive_tier_new(&g->dynamic, (uint32_t)limit, ring);
}

static lookup_status build(lookup_adaptive *g, const lookup_static *static_cache, const lookup_table *dynamic) {
    lookup_adaptive_tables(&g->tables);
    dense(&g->curve);
    costs_from(g, 1);
    g->learned = lookup_alloc(1, sizeof *g->learned);
    g->before = lookup_alloc(1, sizeof *g->before);
    CHECK(g->learned != NULL && g->before != NULL, LOOKUP_E_MEMORY);
    lookup_adaptive_learned_init(g->learned, &g->tables);
    TRY(lookup_adaptive_static_new(&g->fixed, static_cache));
    TRY(new_dynamic(g));
    return g->params.dynamic_bytes == 0 ? LOOKUP_OK : import_table(&g->dynamic, dynamic);
}

lookup_status lookup_adaptive_new(const lookup_adaptive_params *params, const lookup_static *static_cache,
                                  const lookup_table *dynamic, lookup_adaptive **group) {
    CHECK(params != NULL && group != NULL, LOOKUP_E_ARGUMENT);
    CHECK(params->draft_max >= 1 && params->draft_max <= LOOKUP_MAX_DRAFT, LOOKUP_E_ARGUMENT);
    lookup_adaptive *g = lookup_alloc(1, sizeof *g);
    CHECK(g != NULL, LOOKUP_E_MEMORY);
    g->params = *params;
    lookup_status status = build(g, static_cache, dynamic);
    if (status != LOOKUP_OK) {
        lookup_adaptive_free(g);
        return status;
    }
    *group = g;
    return LOOKUP_OK;
}

void lookup_adaptive_free(lookup_adaptive *g) {
    if (g == NULL) return;
    lookup_adaptive_tier_free(&g->dynamic);
    lookup_adaptive_static_free(&g->fixed);
    lookup_free(g->learned);
    lookup_free(g->before);
    lookup_free(g->batch);
    lookup_free(g->heap);
    lookup_free(g);
}

lookup_status lookup_source_ngram_adaptive(const lookup_adaptive_params *params, const lookup_static *static_cache,
                                           const lookup_table *dynamic, lookup_source **source) {
    lookup_adaptive *g = NULL;
    TRY(lookup_adaptive_new(params, static_cache, dynamic, &g));
    lookup_status status = source == NULL ? LOOKUP_E_ARGUMENT : lookup_adaptive_join(g, source);
    if (status == LOOKUP_OK) lookup_adaptive_member(*source)->owns_group = true;
    else lookup_adaptive_free(g);
    return status;
}

lookup_status lookup_adaptive_of(lookup_source *source, lookup_adaptive **group) {
    member *m = lookup_adaptive_member(source);
    CHECK(m != NULL && group != NULL, LOOKUP_E_ARGUMENT);
    *group = m->group;
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_set_costs(lookup_adaptive *g, const int32_t *widths, const double *costs, size_t n) {
    CHECK(g != NULL, LOOKUP_E_ARGUMENT);
    TRY(lookup_adaptive_curve(&g->curve, widths, costs, n));
    costs_from(g, 1);
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_counters(const lookup_adaptive *g, lookup_adaptive_counts *counts) {
    CHECK(g != NULL && counts != NULL, LOOKUP_E_ARGUMENT);
    *counts = g->counts;
    counts->dynamic_bytes = lookup_adaptive_tier_bytes(&g->dynamic);
    counts->learned_tokens = g->learned->tokens;
    for (const member *m = g->members; m != NULL; m = m->next)
        counts->context_bytes += lookup_adaptive_tier_bytes(&m->context) + m->capacity * (sizeof(int32_t) + sizeof(uint64_t));
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_clear_counters(lookup_adaptive *g) {
    CHECK(g != NULL, LOOKUP_E_ARGUMENT);
    memset(&g->counts, 0, sizeof g->counts);
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_reset(lookup_adaptive *g) {
    CHECK(g != NULL, LOOKUP_E_ARGUMENT);
    lookup_adaptive_tier_clear(&g->dynamic);
    lookup_adaptive_learned_init(g->learned, &g->tables);
    g->alone = NULL;
    g->lately = g->paid = 0;
    return LOOKUP_OK;
}
