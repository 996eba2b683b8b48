/* One draft budget for all requests of a batch.
 *
 * Several requests are verified in one batch, so width is the batch's: the further tokens of all
 * chains are taken by the probability that they are reached, the likeliest first, and the first K of
 * them are drafted, with K where  sum of P - s * (cost(W + K) - cost(W))  is largest. W is the width
 * without drafts, s the batch's speed of late in tokens per plain decode of one. A single request
 * looks ahead instead (adaptive_length.c). */
#include "adaptive_group.h"

#define KEPT 0.9995 /* of the speed of late, by step */
#define LEAST 0.004f

static float reach(const member *m) { return m->n_draft < m->n_chain ? m->reach[m->n_draft] : 0; }

/* Whether `a` comes before `b`: the likelier next token, the earlier member among equals. */
static bool before(member *const *all, uint32_t a, uint32_t b) {
    float p = reach(all[a]), q = reach(all[b]);
    return p > q || (p == q && a < b);
}

static void sift(member *const *all, uint32_t *heap, size_t n, size_t at) {
    for (;;) {
        size_t best = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; ++child)
            if (before(all, heap[child], heap[best])) best = child;
        if (best == at) return;
        uint32_t moved = heap[at];
        heap[at] = heap[best];
        heap[best] = moved;
        at = best;
    }
}

/* Gives out up to `most` tokens, the likeliest first; returns how many of them pay best. */
static size_t give_out(lookup_adaptive *g, size_t n, size_t width, double speed, size_t most) {
    double sum = 0, worth = 0, plain = lookup_adaptive_cost(&g->curve, width);
    size_t best = 0;
    for (size_t i = 0; i < n; ++i) {
        g->heap[i] = (uint32_t)i;
        g->batch[i]->n_draft = 0;
    }
    for (size_t i = n / 2 + 1; i-- > 0;) sift(g->batch, g->heap, n, i);
    for (size_t k = 1; k <= most; ++k) {
        member *m = g->batch[g->heap[0]];
        float p = reach(m);
        if (p <= 0) break;
        sum += (double)p;
        m->n_draft++;
        sift(g->batch, g->heap, n, 0);
        double here = sum - speed * (lookup_adaptive_cost(&g->curve, width + k) - plain);
        if (here <= worth) continue;
        worth = here;
        best = k;
    }
    return best;
}

static lookup_status reserve(lookup_adaptive *g, size_t n) {
    if (n <= g->batch_capacity) return LOOKUP_OK;
    CHECK(n < UINT32_MAX, LOOKUP_E_LIMIT);
    member **batch = lookup_realloc(g->batch, n, sizeof *batch);
    CHECK(batch != NULL, LOOKUP_E_MEMORY);
    g->batch = batch;
    uint32_t *heap = lookup_realloc(g->heap, n, sizeof *heap);
    CHECK(heap != NULL, LOOKUP_E_MEMORY);
    g->heap = heap;
    g->batch_capacity = n;
    return LOOKUP_OK;
}

static void multiply(member *m) {
    float all = 1;
    for (size_t i = 0; i < m->n_chain; ++i) m->reach[i] = all *= m->p[i];
}

/* Takes in what became known since the last batch, and the speed that it had. */
static lookup_status catch_up(lookup_adaptive *g, lookup_source *const *members, const int32_t *const *tokens,
                              const size_t *n, const size_t *capacity, size_t n_members) {
    for (size_t i = 0; i < n_members; ++i) {
        member *m = lookup_adaptive_member(members[i]);
        CHECK(m != NULL && m->group == g && tokens[i] != NULL, LOOKUP_E_ARGUMENT);
        size_t most = capacity[i] < (size_t)g->params.draft_max ? capacity[i] : (size_t)g->params.draft_max;
        if (m->in_batch && n[i] > m->n) g->lately += (double)(n[i] - m->n);
        TRY(lookup_adaptive_catch_up(m, tokens[i], n[i]));
        TRY(lookup_adaptive_chain(m, most, n_members == 1 ? g->cut : LEAST));
        multiply(m);
        m->in_batch = true;
        g->batch[i] = m;
    }
    return LOOKUP_OK;
}

static size_t share(lookup_adaptive *g, size_t n, size_t width) {
    size_t most = 0;
    double plain = lookup_adaptive_cost(&g->curve, width), least = (double)width / plain;
    double speed = g->paid > 0 && g->lately / g->paid > least ? g->lately / g->paid : least;
    for (size_t i = 0; i < n; ++i) most += g->batch[i]->n_chain;
    size_t best = give_out(g, n, width, speed, most);
    return give_out(g, n, width, speed, best); /* the same order again, up to the best place */
}

lookup_status lookup_adaptive_draft(lookup_adaptive *g, lookup_source *const *members, const int32_t *const *tokens,
                                    const size_t *n, const size_t *capacity, size_t n_members, size_t n_others,
                                    int32_t *drafts, size_t stride, size_t *n_drafts) {
    CHECK(g && members && tokens && n && capacity && n_drafts && n_members >= 1, LOOKUP_E_ARGUMENT);
    size_t width = n_members + n_others, total = width;
    TRY(reserve(g, n_members));
    TRY(catch_up(g, members, tokens, n, capacity, n_members));
    member *first = g->batch[0];
    if (width == 1) first->n_draft = lookup_adaptive_length(first->p, first->n_chain, g->cost, g->from);
    else (void)share(g, n_members, width);
    for (size_t i = 0; i < n_members; ++i) {
        const member *m = g->batch[i];
        CHECK(m->n_draft <= stride && (m->n_draft == 0 || drafts != NULL), LOOKUP_E_ARGUMENT);
        if (m->n_draft > 0) memcpy(drafts + i * stride, m->chain, m->n_draft * sizeof *drafts);
        n_drafts[i] = m->n_draft;
        total += m->n_draft;
        g->counts.drafted_length[m->n_draft]++;
    }
    g->lately *= KEPT;
    g->paid = g->paid * KEPT + lookup_adaptive_cost(&g->curve, total);
    return LOOKUP_OK;
}
