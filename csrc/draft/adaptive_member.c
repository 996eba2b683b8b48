/* One sequence of ngram-adaptive: its text, context tier and alignments, behind the calls that every
 * source has.
 *
 * What is learned follows from the tokens alone: each one that becomes known is weighed against the
 * estimate that the text before it gives, drafted or not. So a history that shrinks is told again
 * from what was learned before it, and nothing is left of what was taken back. */
#include "adaptive_group.h"

static void see_text(member *m, size_t n) {
    m->context.text.tokens = m->text.tokens;
    m->context.text.end = m->context.text.held = (uint32_t)n;
}

static lookup_status reserve_text(member *m, size_t n) {
    if (n <= m->capacity) return LOOKUP_OK;
    CHECK(n < UINT32_MAX / 2, LOOKUP_E_LIMIT);
    size_t capacity = m->capacity + m->capacity / 4;
    capacity = capacity > n ? capacity : n;
    int32_t *tokens = lookup_realloc(m->text.tokens, capacity, sizeof *tokens);
    CHECK(tokens != NULL, LOOKUP_E_MEMORY);
    m->text.tokens = tokens;
    uint64_t *prefix = lookup_realloc(m->text.prefix, capacity + 1, sizeof *prefix);
    CHECK(prefix != NULL, LOOKUP_E_MEMORY);
    prefix[0] = 0;
    m->text.prefix = prefix;
    m->capacity = capacity;
    see_text(m, m->n);
    return LOOKUP_OK;
}

static void push(member *m, size_t at, int32_t token) {
    m->text.tokens[at] = token;
    m->text.prefix[at + 1] = prefix_after(m->text.prefix[at], token);
    see_text(m, at + 1);
}

static void forget(member *m) {
    lookup_adaptive_tier_clear(&m->context);
    memset(&m->state, 0, sizeof m->state);
    if (++m->edits.epoch == 0) memset(&m->edits, 0, sizeof m->edits), m->edits.epoch = 1;
    m->n = m->n_chain = m->n_draft = m->remembered = 0;
    m->estimated = m->in_batch = false;
    see_text(m, 0);
}

/* Enters what became of the last draft, as far as its tokens were put to the test. */
static void judge(member *m, const int32_t *tokens, size_t n) {
    lookup_adaptive_counts *c = &m->group->counts;
    for (size_t i = 0; i < m->n_draft && m->n + i < n; ++i) {
        bool hit = tokens[m->n + i] == m->chain[i];
        int bin = (int)(m->p[i] * LOOKUP_ADAPTIVE_BINS);
        bin = bin < LOOKUP_ADAPTIVE_BINS ? bin : LOOKUP_ADAPTIVE_BINS - 1;
        c->trials[bin]++;
        c->predicted[bin] += (uint64_t)(m->p[i] * 65536.0f);
        c->accepted[bin] += hit;
        if (!hit) break;
    }
    m->n_draft = 0;
}

static void estimate_next(member *m) {
    if (!m->estimated) lookup_adaptive_estimate(&m->estimator, m->n, &m->state, &m->first);
    m->estimated = true;
}

/* One token becomes known. Nothing has changed if that fails. */
static lookup_status take_in(member *m, int32_t token, bool learning) {
    CHECK(token >= 0, LOOKUP_E_TOKEN);
    estimate_next(m);
    estimate *e = &m->first;
    TRY(lookup_adaptive_count(&m->context, &m->text, m->n, token, (uint32_t)m->n));
    if (learning) lookup_adaptive_learn(&m->estimator, e, token);
    push(m, m->n++, token);
    bool hit = e->best >= 0 && e->all[e->best].token == token;
    lookup_adaptive_follow(&m->estimator.align, &m->state, hit, true);
    m->estimated = false;
    return LOOKUP_OK;
}

static lookup_status take_in_all(member *m, const int32_t *tokens, size_t n, bool learning) {
    TRY(reserve_text(m, n + LOOKUP_MAX_DRAFT));
    lookup_status status = LOOKUP_OK;
    while (m->n < n && status == LOOKUP_OK) status = take_in(m, tokens[m->n], learning);
    return status;
}

lookup_status lookup_adaptive_catch_up(member *m, const int32_t *tokens, size_t n) {
    CHECK(n >= m->n, LOOKUP_E_ARGUMENT);
    if (m->n < n) judge(m, tokens, n);
    if (m->group->alone != m && m->n < n) m->group->alone = NULL;
    return take_in_all(m, tokens, n, true);
}

lookup_status lookup_adaptive_chain(member *m, size_t most, float cut) {
    m->n_chain = 0;
    if (m->n == 0 || most == 0) return LOOKUP_OK;
    estimate_next(m);
    alignment ahead = m->state;
    const estimate *e = &m->first;
    for (float all = 1; e->best >= 0;) {
        all *= e->p;
        if (all < cut) break;
        size_t at = m->n + m->n_chain;
        m->p[m->n_chain] = e->p;
        m->chain[m->n_chain++] = e->all[e->best].token;
        if (m->n_chain == most) break;
        push(m, at, e->all[e->best].token);
        lookup_adaptive_follow(&m->estimator.align, &ahead, true, false);
        lookup_adaptive_estimate(&m->estimator, at + 1, &ahead, &m->further);
        e = &m->further;
    }
    see_text(m, m->n);
    return LOOKUP_OK;
}

/* ---- the calls of a source */

static lookup_status member_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    member *m = (member *)source;
    lookup_adaptive *g = m->group;
    forget(m);
    if (g->n_members == 1) {
        memcpy(g->before, g->learned, sizeof *g->learned);
        g->alone = m;
    }
    return lookup_adaptive_catch_up(m, tokens, n);
}

static lookup_status member_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                                  uint8_t *tiers, size_t capacity, size_t *n_draft) {
    member *m = (member *)source;
    lookup_source *members[1] = {source};
    (void)tiers;
    return lookup_adaptive_draft(m->group, members, &tokens, &n, &capacity, 1, 0, draft, capacity, n_draft);
}

static lookup_status member_accept(lookup_source *source, size_t n_accepted) {
    (void)source;
    (void)n_accepted; /* what was really said arrives with the next call's tokens */
    return LOOKUP_OK;
}

static lookup_status member_truncate(lookup_source *source, const int32_t *tokens, size_t n) {
    member *m = (member *)source;
    lookup_adaptive *g = m->group;
    if (n >= m->n) return lookup_adaptive_catch_up(m, tokens, n);
    bool alone = g->alone == m;
    size_t remembered = m->remembered < n ? m->remembered : n;
    forget(m);
    m->remembered = remembered;
    if (alone) memcpy(g->learned, g->before, sizeof *g->learned);
    return take_in_all(m, tokens, n, alone);
}

static void member_free(lookup_source *source) {
    member *m = (member *)source;
    lookup_adaptive *g = m->group;
    lookup_adaptive_tier_free(&m->context);
    lookup_free(m->text.tokens);
    lookup_free(m->text.prefix);
    if (g->alone == m) g->alone = NULL;
    member **at = &g->members;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    --g->n_members;
    if (m->owns_group) lookup_adaptive_free(g);
    lookup_free(m);
}

static const source_calls CALLS = {member_free, member_begin, member_draft, member_accept, member_truncate};

member *lookup_adaptive_member(lookup_source *source) {
    return source != NULL && source->calls == &CALLS ? (member *)source : NULL;
}

static void connect(member *m) {
    lookup_adaptive *g = m->group;
    m->estimator = (estimator){.tables = &g->tables, .learned = g->learned, .fixed = &g->fixed,
                               .tiers = {&m->context, &g->dynamic}, .text = &m->text,
                               .align = {.text = {&m->context.text, &g->dynamic.text}, .edits = &m->edits}};
}

lookup_status lookup_adaptive_join(lookup_adaptive *group, lookup_source **source) {
    CHECK(group != NULL && source != NULL, LOOKUP_E_ARGUMENT);
    member *m = lookup_alloc(1, sizeof *m);
    CHECK(m != NULL, LOOKUP_E_MEMORY);
    m->base.calls = &CALLS;
    m->group = group;
    lookup_status status = lookup_adaptive_tier_new(&m->context, 0, 0);
    if (status == LOOKUP_OK) status = reserve_text(m, LOOKUP_MAX_DRAFT);
    if (status != LOOKUP_OK) {
        lookup_adaptive_tier_free(&m->context);
        lookup_free(m->text.tokens);
        lookup_free(m->text.prefix);
        lookup_free(m);
        return status;
    }
    ++group->n_members;
    m->next = group->members;
    group->members = m;
    connect(m);
    forget(m);
    *source = &m->base;
    return LOOKUP_OK;
}

/* What is new into the dynamic tier, behind a gap that no n-gram reaches across. */
static lookup_status remember(member *m) {
    gram_tier *t = &m->group->dynamic;
    size_t from = m->remembered;
    if (m->group->params.dynamic_bytes == 0 || from >= m->n) return LOOKUP_OK;
    m->remembered = m->n;
    lookup_adaptive_text_push(&t->text, NO_TOKEN);
    for (size_t i = from; i < m->n; ++i) {
        uint32_t at = t->text.end;
        lookup_adaptive_text_push(&t->text, m->text.tokens[i]);
        if (i > 0) TRY(lookup_adaptive_count(t, &m->text, i, m->text.tokens[i], at));
    }
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_remember(lookup_source *source, const int32_t *tokens, size_t n) {
    member *m = lookup_adaptive_member(source);
    CHECK(m != NULL && (n == 0 || tokens != NULL), LOOKUP_E_ARGUMENT);
    TRY(lookup_adaptive_catch_up(m, tokens, n));
    m->estimated = false; /* the estimate at hand lacks what the tier knows now */
    m->group->alone = NULL; /* a text that shrinks can no longer be told as if it were new */
    return remember(m);
}

void lookup_adaptive_mark(lookup_source *source, size_t n) {
    member *m = lookup_adaptive_member(source);
    if (m != NULL) m->remembered = n;
}

lookup_status lookup_adaptive_end(lookup_source *source, const int32_t *tokens, size_t n) {
    member *m = lookup_adaptive_member(source);
    CHECK(m != NULL && (n == 0 || tokens != NULL), LOOKUP_E_ARGUMENT);
    TRY(lookup_adaptive_catch_up(m, tokens, n));
    lookup_status status = remember(m);
    forget(m);
    m->group->alone = NULL;
    return status;
}
