/* Which tokens may come, and how likely each of them is.
 *
 * Every n-gram of every tier that the history ends in votes on every candidate, by the odds of its
 * counts and by a rate learned for evidence of that kind; so do the alignments. The votes are mixed
 * by learned weights (a logistic mixing), the likeliest candidate is corrected for being the
 * likeliest. Every token that becomes known corrects all that took part. */
#include "adaptive_estimate.h"

#define MIX_RATE 0.0015f
#define TOKEN_BIAS_RATE 0.15f
#define LEVEL_RATE 0.1f
#define RECENT_RATE 0.02f
#define RUN_BONUS 0.3f
#define FIRST_TRIALS 6u
#define SLOW 20.0f /* trials that a correction's first value is worth */

/* ---- evidence */

INLINE uint8_t step_of(uint32_t n) {
    static const uint8_t SMALL[16] = {0, 0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 6};
    if (n < 16) return SMALL[n];
    return n <= 30 ? 7 : n <= 80 ? 8 : n <= 300 ? 9 : n <= 2000 ? 10 : 11;
}

INLINE uint8_t run_class(uint32_t run) { return run <= 1 ? 1 : run <= 3 ? 2 : 3; }

INLINE void add_gram(evidence *out, const gram *g, int tier, int order) {
    *out = (evidence){.total = g->total, .count = {g->count[0], g->count[1]}, .token = {g->token[0], g->token[1]},
                      .latest = g->token[g->latest], .kind = (uint8_t)(tier * KIND_DYNAMIC + order),
                      .order = (uint8_t)order, .tier = (uint8_t)tier, .step = step_of(g->total), .run = g->run};
    if (g->run == 0) out->latest = NO_TOKEN; /* counted elsewhere: nobody knows what came last */
}

/* The n-grams of one tier, shortest first. Behind one that was seen once, its text decides. */
static int look_up(const estimator *s, size_t n, int tier, evidence *out, match *deepest) {
    const gram_tier *t = s->tiers[tier];
    int found = 0;
    *deepest = (match){NULL, 0};
    for (int o = 0; o < N_ORDERS && ORDER[o] <= n; ++o) {
        const gram *g = gram_find(t, lookup_adaptive_hash(s->text, n, o), o);
        if (g == NULL) break;
        uint32_t same = 0;
        if (g->total == 1 && text_has(&t->text, g->at)) {
            same = lookup_adaptive_common(&t->text, g->at, s->text->tokens, n, LONGEST_ORDER);
            if (same < ORDER[o]) break; /* another n-gram of the same hash */
        }
        do {
            add_gram(&out[found++], g, tier, o);
            *deepest = (match){g, o};
        } while (same != 0 && o + 1 < N_ORDERS && ORDER[o + 1] <= same && ++o);
        if (same != 0) break;
    }
    return found;
}

static int look_up_static(const estimator *s, size_t n, evidence *out) {
    if (s->fixed->cache == NULL || n < 2) return 0;
    const int32_t *tokens = s->text->tokens;
    const static_part *p = lookup_adaptive_static_part(s->fixed, tokens[n - 2], tokens[n - 1]);
    if (p->length == 0 || p->total == 0) return 0;
    *out = (evidence){.total = p->total, .count = {p->count[0], p->count[1]}, .token = {p->token[0], p->token[1]},
                      .latest = NO_TOKEN, .kind = KIND_STATIC, .order = 1, .tier = 2, .step = step_of(p->total)};
    return 1;
}

void lookup_adaptive_prefetch(const estimator *s, size_t n) {
    for (int o = 0; o < 4 && ORDER[o] <= n; ++o) {
        uint32_t hash = lookup_adaptive_hash(s->text, n, o);
        for (int tier = 0; tier < 2; ++tier) gram_prefetch(s->tiers[tier], hash);
    }
}

/* ---- what is at hand before one token */

typedef struct {
    evidence all[MAX_EVIDENCE];
    int n, longest[3]; /* 1 + order of the longest match by tier, 0 for none */
    int evidence;      /* row of the longest match's counts */
    int32_t exact, next, skip, last;
    const edit *edits[EDIT_KINDS];
    int length_step, in_context, coarse; /* of the exact match */
    int mode, often, near, known, token_class; /* of the alignment */
} situation;

static int step_of_length(uint32_t n) { /* 0 to 4, then half octaves */
    if (n <= 4) return (int)n;
    int octave = 0;
    for (uint32_t m = n; m > 1; m >>= 1) ++octave;
    int step = 2 * octave + (int)(n >> (octave - 1) & 1);
    return step < N_LENGTHS - 1 ? step : N_LENGTHS - 1;
}

static uint32_t ones(uint32_t bits) {
    uint32_t n = 0;
    for (; bits != 0; bits &= bits - 1) ++n;
    return n;
}

static int bucket(uint32_t n, uint32_t a, uint32_t b, uint32_t c) { return n < a ? 0 : n < b ? 1 : n < c ? 2 : 3; }

static void describe_alignment(situation *w, const align_view *v, const alignment *a) {
    const copying *x = &a->exact, *c = &a->aligned;
    w->exact = copy_token(v, x, 0);
    w->next = copy_token(v, c, 0);
    w->skip = c->on && c->broken ? copy_token(v, c, c->broken) : NO_TOKEN;
    w->length_step = x->on ? step_of_length(x->length) : 0;
    w->in_context = x->on && x->tier == 0;
    w->coarse = bucket(x->length, 8, 24, 64);
    int step = step_of_length(c->length);
    w->mode = !c->on ? 0 : c->broken ? 1 + (c->broken < 6 ? c->broken : 6) : 8 + (step < 15 ? step : 15);
    uint32_t misses = ones(c->misses & 0xffff);
    w->often = (int)(misses < 3 ? misses : 3);
    w->near = (c->misses & 15) != 0;
    w->token_class = c->broken ? 1 + (c->broken < 3 ? c->broken : 3) : 5 + bucket(c->length, 4, 16, 64);
    w->known = 0;
    for (int kind = 0; kind < EDIT_KINDS; ++kind) {
        w->edits[kind] = lookup_adaptive_edit(v, a, kind);
        w->known = w->known * 3 + (w->edits[kind] == NULL ? 0 : w->edits[kind]->right > 1 ? 2 : 1);
    }
}

static void look_around(const estimator *s, size_t n, alignment *a, situation *w) {
    match deepest[2];
    const evidence *top = NULL;
    w->n = 0;
    w->last = s->text->tokens[n - 1];
    for (int tier = 0; tier < 3; ++tier) {
        evidence *out = &w->all[w->n];
        int found = tier < 2 ? look_up(s, n, tier, out, &deepest[tier]) : look_up_static(s, n, out);
        w->longest[tier] = found == 0 ? 0 : 1 + out[found - 1].order;
        w->n += found;
        if (tier < 2 && found > 0 && (top == NULL || out[found - 1].order >= top->order)) top = &out[found - 1];
    }
    w->evidence = top == NULL ? 0 : 1 + top->step * N_RUNS + bucket(top->run, 2, 3, 5);
    lookup_adaptive_realign(&s->align, a, deepest);
    describe_alignment(w, &s->align, a);
}

/* ---- candidates */

static void propose(estimate *e, int32_t token) {
    if (token < 0 || e->n == MAX_CANDIDATES) return;
    for (int i = 0; i < e->n; ++i)
        if (e->all[i].token == token) return;
    e->all[e->n++].token = token;
}

static void propose_all(const situation *w, estimate *e) {
    e->n = 0;
    propose(e, w->exact);
    for (int kind = 0; kind < EDIT_KINDS; ++kind)
        if (w->edits[kind] != NULL) propose(e, w->edits[kind]->token);
    propose(e, w->next);
    propose(e, w->skip);
    int c = w->longest[0], d = c + w->longest[1];
    for (int o = N_ORDERS; o >= 1; --o) {
        const evidence *x = o <= w->longest[0] ? &w->all[o - 1] : NULL, *y = o <= w->longest[1] ? &w->all[c + o - 1] : NULL;
        if (x) propose(e, x->token[0]), propose(e, x->latest);
        if (y) propose(e, y->token[0]), propose(e, y->latest);
    }
    if (d < w->n) propose(e, w->all[d].token[0]);
}

INLINE float ln_of(const float *table, uint32_t n) {
    int halvings = 0;
    for (; n >= COUNTED; n >>= 1) ++halvings;
    return table[n] + (float)halvings * 0.693147181f;
}

INLINE void add_rate(const estimator *s, candidate *c, int input, rate *r, float first, uint32_t trials) {
    rate now = LIKELY((*r & 1023u) != 0) ? *r : rate_of(first, trials);
    c->firsts[c->n_rates] = now;
    c->rates[c->n_rates++] = r;
    c->x[input] = stretched(s->tables, now);
}

static void ask_gram(const estimator *s, const evidence *g, candidate *c) {
    const adaptive_tables *t = s->tables;
    uint32_t k = g->token[0] == c->token ? g->count[0] : g->token[1] == c->token ? g->count[1] : 0;
    if (k > 0 && g->tier < 2) c->depth[g->tier] = (uint8_t)(g->order + 1);
    int run = g->latest == c->token ? run_class(g->run) : 0;
    float odds = ln_of(t->ln_hits, k) - ln_of(t->ln_misses, g->total - (k < g->total ? k : g->total));
    int step = (int)(odds * 2 + 8.5f);
    step = step < 0 ? 0 : step < N_SHARES ? step : N_SHARES - 1;
    if (run) odds += RUN_BONUS;
    float z = odds < -Z_LIMIT ? -Z_LIMIT : odds > Z_LIMIT ? Z_LIMIT : odds;
    rate *r = &s->learned->grams[g->kind][g->step][step][run];
    add_rate(s, c, 2 * g->kind, r, squashed(t, z), FIRST_TRIALS);
    c->x[2 * g->kind + 1] = odds;
}

static void ask_alignments(const estimator *s, const situation *w, candidate *c) {
    learned *k = s->learned;
    bool is_exact = c->token == w->exact, is_next = c->token == w->next;
    int which = is_next + 2 * (c->token == w->skip);
    if (w->exact >= 0) {
        rate *r = &k->exact[w->length_step][w->in_context][is_exact];
        add_rate(s, c, is_exact ? INPUT_EXACT : INPUT_EXACT_NOT, r, is_exact ? 0.5f : 0.02f, 4);
        if (is_exact) {
            uint32_t class = (uint32_t)w->coarse;
            add_rate(s, c, INPUT_COME, &k->come[token_slot(c->token, 4, class, TOKEN_RATE_BITS)], rate_p(*r), 3);
            add_rate(s, c, INPUT_CAME, &k->came[token_slot(w->last, 4, class, TOKEN_RATE_BITS)], rate_p(*r), 3);
        }
    }
    if (w->next >= 0) {
        rate *r = &k->aligned[w->mode][w->often][w->near][w->known][which];
        add_rate(s, c, which ? INPUT_ALIGNED : INPUT_ALIGNED_NOT, r, which ? 0.5f : 0.02f, 4);
        uint32_t slot = token_slot(c->token, 32, (uint32_t)w->token_class, TOKEN_RATE_BITS);
        if (is_next) add_rate(s, c, INPUT_ALIGNED_COME, &k->aligned_come[slot], rate_p(*r), 3);
    }
    for (int kind = 0; kind < EDIT_KINDS; ++kind) {
        const edit *d = w->edits[kind];
        if (d == NULL) continue;
        int is = c->token == d->token;
        rate *r = &k->edited[d->right < 4 ? d->right : 4][d->wrong < 3 ? d->wrong : 3][is][kind];
        add_rate(s, c, INPUT_EDIT + 2 * kind + !is, r, is ? 0.4f : 0.15f, 4);
    }
}

/* ---- mixing */

/* Sums in a fixed order: eight partial sums, then those from the first on. */
INLINE float mix(const float *common, const candidate *c) {
    float sums[8] = {0};
    for (int i = 0; i < N_INPUTS; i += 8)
        for (int j = 0; j < 8; ++j) sums[j] += (common[i + j] + (c->support[i + j] + c->alignment[i + j])) * c->x[i + j];
    float a = (sums[0] + sums[4]) + (sums[1] + sums[5]), b = (sums[2] + sums[6]) + (sums[3] + sums[7]);
    return a + b;
}

static void choose_weights(const estimator *s, const situation *w, const alignment *a, candidate *c) {
    learned *k = s->learned;
    uint32_t depth = c->depth[0] > c->depth[1] ? c->depth[0] : c->depth[1];
    c->support = k->by_support[c->depth[0]][c->depth[1]];
    c->alignment = k->by_alignment[w->mode][w->exact >= 0 && c->token == w->exact][w->next >= 0 && c->token == w->next];
    c->bias[0] = &k->said[token_slot(c->token, 16, depth, TOKEN_BIAS_BITS)];
    c->bias[1] = &k->after[token_slot(w->last, 16, depth, TOKEN_BIAS_BITS)];
    c->bias[2] = &k->level[depth];
    c->bias[3] = &k->recent[a->hits & 15][ones(a->hits & 0xfff0)][depth];
}

static void weigh(const estimator *s, const float *common, candidate *c) {
    float z = ((*c->bias[0] + *c->bias[1]) + (*c->bias[2] + *c->bias[3])) + mix(common, c);
    c->z = z < -Z_LIMIT ? -Z_LIMIT : z > Z_LIMIT ? Z_LIMIT : z;
    c->p = squashed(s->tables, c->z);
}

/* The best of several was chosen because it looks good. */
static void correct(const estimator *s, const situation *w, estimate *e) {
    const candidate *c = &e->all[e->best];
    float place = (c->z + Z_LIMIT) * ((float)(N_STEPS - 1) / (2 * Z_LIMIT));
    int step = (int)place < N_STEPS - 2 ? (int)place : N_STEPS - 2;
    int how = w->next >= 0 && c->token == w->next ? 2 : w->exact >= 0 && c->token == w->exact ? 1 : 0;
    e->part = place - (float)step;
    e->low[0] = &s->learned->corrections[c->depth[0] > c->depth[1] ? c->depth[0] : c->depth[1]][step];
    e->low[1] = &s->learned->aligned_corrections[w->mode][how][step];
    e->p = c->p;
    for (int i = 0; i < 2; ++i) e->p += e->low[i][0].p * (1 - e->part) + e->low[i][1].p * e->part;
    e->p *= 1.0f / 3;
    e->p = e->p > 0 ? e->p < 1 ? e->p : 1 : 0; /* whatever a state file held */
}

void lookup_adaptive_estimate(const estimator *s, size_t n, alignment *a, estimate *e) {
    situation w;
    e->n = 0;
    e->best = -1;
    e->p = 0;
    if (n == 0) return;
    look_around(s, n, a, &w);
    propose_all(&w, e);
    e->match = s->learned->by_match[w.longest[0]][w.longest[1]][w.longest[2] > 0];
    e->evidence = s->learned->by_evidence[w.evidence];
    _Alignas(16) float common[N_INPUTS];
    for (int i = 0; i < N_INPUTS; ++i) common[i] = e->match[i] + e->evidence[i];
    for (int i = 0; i < e->n; ++i) {
        candidate *c = &e->all[i];
        memset(c->x, 0, sizeof c->x);
        c->depth[0] = c->depth[1] = c->n_rates = 0;
        for (int j = 0; j < w.n; ++j) ask_gram(s, &w.all[j], c);
        ask_alignments(s, &w, c);
        c->x[INPUT_ONE] = 1;
        choose_weights(s, &w, a, c);
        weigh(s, common, c);
        if (e->best < 0 || c->p > e->all[e->best].p) e->best = i;
    }
    if (e->best >= 0) correct(s, &w, e);
}

/* ---- learning */

INLINE void step_weights(float *weights, const float *x, float by) {
    for (int i = 0; i < N_INPUTS; ++i) weights[i] += by * x[i];
}

static void learn_correction(const estimate *e, bool hit) {
    for (int i = 0; i < 4; ++i) {
        mean *m = &e->low[i / 2][i % 2];
        float w = i % 2 ? e->part : 1 - e->part;
        m->n = m->n + w < (float)TRIALS_MAX ? m->n + w : (float)TRIALS_MAX;
        m->p += w * ((float)hit - m->p) / (m->n + SLOW);
    }
}

void lookup_adaptive_learn(const estimator *s, estimate *e, int32_t truth) {
    static const float BIAS_RATE[N_BIASES] = {TOKEN_BIAS_RATE, TOKEN_BIAS_RATE, LEVEL_RATE, RECENT_RATE};
    _Alignas(16) float common[N_INPUTS] = {0};
    ++s->learned->tokens;
    if (e->n == 0) return;
    for (int i = 0; i < e->n; ++i) {
        candidate *c = &e->all[i];
        bool hit = c->token == truth;
        float error = (float)hit - c->p, by = MIX_RATE * error;
        step_weights(common, c->x, by);
        step_weights(c->support, c->x, by);
        step_weights(c->alignment, c->x, by);
        for (int b = 0; b < N_BIASES; ++b) *c->bias[b] += BIAS_RATE[b] * error;
        for (int i_rate = 0; i_rate < c->n_rates; ++i_rate) {
            rate *r = c->rates[i_rate];
            *r = rate_after(s->tables, (*r & 1023u) != 0 ? *r : c->firsts[i_rate], hit);
        }
    }
    for (int i = 0; i < N_INPUTS; ++i) {
        e->match[i] += common[i];
        e->evidence[i] += common[i];
    }
    learn_correction(e, e->all[e->best].token == truth);
}
