#include "sources.h"

#include <string.h>

static const uint8_t PERCENT[] = {0, 34, 50, 51, 66, 67, 75, 100};

static int32_t between(input *in, int32_t low, int32_t high) { return low + (int32_t)take(in) % (high - low + 1); }

static void take_thresholds(input *in, lookup_thresholds *t) {
    for (int k = 0; k < 4; ++k) {
        uint32_t b = take(in);
        t->samples[k] = 1 + (int32_t)(b & 3);
        t->percent[k] = PERCENT[(b >> 2) % sizeof PERCENT];
    }
}

/* One byte a statement: the order in which a compiler reads them must not matter. */
static void take_member(input *in, member *m) {
    uint32_t b = take(in);
    m->kind = (source_kind)(b % KINDS);
    switch (m->kind) {
    case SIMPLE:
        m->params.simple.size_n = between(in, 1, 4);
        m->params.simple.size_m = between(in, 1, 8);
        break;
    case MAP:
        m->params.map.size_n = between(in, 1, 4);
        m->params.map.size_m = between(in, 1, 8);
        m->params.map.min_hits = between(in, 1, 3);
        m->params.map.k4v = (b >> 4) & 1;
        m->params.map.compat = (b >> 5) & 1;
        break;
    case MOD:
        m->params.mod.n_match = between(in, 1, 5);
        m->params.mod.n_max = between(in, 1, 80);
        m->params.mod.n_min = between(in, 0, 5);
        break;
    case SUFFIX:
        m->params.suffix.draft = between(in, 1, 8);
        m->params.suffix.min_match = between(in, 1, 4);
        m->params.suffix.max_match = m->params.suffix.min_match + between(in, 0, 9);
        break;
    case CACHE:
    case KINDS:
    default: break;
    }
}

int32_t *take_text(input *in, const arrangement *a, size_t n) {
    int32_t *text = take_tokens(in, n, a->vocab);
    for (size_t i = 0; i < n; ++i) text[i] += a->base;
    return text;
}

/* The static and the dynamic cache; half of the dynamic text is counted after it was indexed. */
static void take_caches(input *in, arrangement *a) {
    uint32_t b = take(in);
    take_thresholds(in, &a->params.context);
    take_thresholds(in, &a->params.dynamic);
    a->params.static_samples = 1 + (int32_t)(b >> 2 & 3);
    a->params.static_percent = PERCENT[b >> 4 & 7];
    if (b & 1) {
        a->n_static = take(in) % 64;
        a->static_text = take_text(in, a, a->n_static);
        MUST(make_cache(a->static_text, a->n_static, a->base + a->vocab, &a->file) == LOOKUP_OK);
        MUST(lookup_static_open(&a->cache, a->file.data, a->file.size) == LOOKUP_OK);
    }
    if (b & 2) {
        a->n_dynamic = take(in) % 96;
        a->dynamic_seam = a->n_dynamic / 2;
        a->dynamic_text = take_text(in, a, a->n_dynamic);
        MUST(lookup_table_new(&a->dynamic) == LOOKUP_OK);
        MUST(lookup_table_update(a->dynamic, a->dynamic_text, a->dynamic_seam) == LOOKUP_OK);
        lookup_table_end_stream(a->dynamic);
        MUST(lookup_table_index(a->dynamic, &a->params.dynamic) == LOOKUP_OK);
        MUST(lookup_table_update(a->dynamic, a->dynamic_text + a->dynamic_seam, a->n_dynamic - a->dynamic_seam) == LOOKUP_OK);
    }
}

void arrange(input *in, arrangement *a) {
    memset(a, 0, sizeof *a);
    uint32_t b = take(in);
    a->vocab = 1 + (int32_t)(b % MAX_VOCAB);
    a->base = b & 128 ? INT32_MAX - a->vocab : 0;
    bool several = take(in) % 8 >= 4;
    uint32_t more = 1 + take(in) % (MEMBERS - 1);
    a->n_members = several ? 1 + more : 1;
    bool caches = false;
    for (size_t i = 0; i < a->n_members; ++i) {
        take_member(in, &a->members[i]);
        caches |= a->members[i].kind == CACHE;
    }
    if (caches) take_caches(in, a);
}

void arrangement_free(arrangement *a) {
    lookup_table_free(a->dynamic);
    blob_free(&a->file);
    test_free(a->static_text);
    test_free(a->dynamic_text);
}

lookup_source *make_source(const arrangement *a, size_t number) {
    const member *m = &a->members[number];
    lookup_source *source = NULL;
    lookup_status status = LOOKUP_E_ARGUMENT;
    switch (m->kind) {
    case SIMPLE: status = lookup_source_ngram_simple(&m->params.simple, &source); break;
    case MAP: status = lookup_source_ngram_map(&m->params.map, &source); break;
    case MOD: status = lookup_source_ngram_mod(&m->params.mod, &source); break;
    case SUFFIX: status = lookup_source_ngram_suffix(&m->params.suffix, &source); break;
    case CACHE: status = lookup_source_ngram_cache(&a->params, a->static_text ? &a->cache : NULL, a->dynamic, &source); break;
    case KINDS:
    default: break;
    }
    MUST(status == LOOKUP_OK);
    return source;
}

/* ---- the models: rescans, no memory */

static bool same(const int32_t *a, const int32_t *b, size_t n) { return n == 0 || memcmp(a, b, n * sizeof *a) == 0; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void model_simple(const lookup_ngram_simple_params *p, const int32_t *tokens, size_t n, size_t room, drafted *out) {
    size_t size = (size_t)p->size_n, m = (size_t)p->size_m, c = n - 1;
    if (n == 0 || c <= size + m + 1) return;
    for (size_t j = c - size - 1; j >= 1; --j) {
        if (!same(tokens + j, tokens + n - size, size)) continue;
        size_t copy = least(m, c - (j + size));
        if (copy < size) return;
        out->n = least(copy, room);
        memcpy(out->tokens, tokens + j + size, 4 * out->n);
        return;
    }
}

static void model_suffix(const lookup_ngram_suffix_params *p, const int32_t *tokens, size_t n, size_t room, drafted *out) {
    size_t longest = 0, from = 0;
    for (size_t end = 1; end < n; ++end) {
        size_t length = 0;
        while (length < end && length < (size_t)p->max_match && tokens[end - 1 - length] == tokens[n - 1 - length]) ++length;
        if (length < longest || length == 0) continue;
        longest = length;
        from = end;
    }
    if (longest < (size_t)p->min_match) return;
    out->n = least(least((size_t)p->draft, n - from), room);
    memcpy(out->tokens, tokens + from, 4 * out->n);
}

/* Adds how often each id followed the n-gram in a text. */
static void count_followers(const arrangement *a, const int32_t *text, size_t n, const int32_t *gram, size_t order, int64_t *counts) {
    for (size_t i = order; i < n; ++i)
        if (same(text + i - order, gram, order)) counts[text[i] - a->base]++;
}

/* The follower with the best score if it passes; -1 if none does. */
static int32_t decide(const arrangement *a, const int64_t *counts, const int64_t *weights, int32_t samples, int32_t percent) {
    int64_t total = 0, max = 0, best_score = 0;
    int32_t best = -1;
    for (int32_t y = 0; y < a->vocab; ++y) {
        int64_t score = counts[y] * (weights[y] > 0 ? 100 * weights[y] : 1);
        total += counts[y];
        if (counts[y] > max) max = counts[y];
        if (score > best_score) best = y;
        if (score > best_score) best_score = score;
    }
    if (total == 0 || total < samples || 100 * max < percent * total) return -1;
    return 100 * counts[best] >= percent * total ? best : -1;
}

/* Context (0) or dynamic tier (1): the longest n-gram that is sure enough. */
static int32_t decide_tier(const arrangement *a, int tier, const int32_t *tokens, size_t n, const int32_t *end, size_t known, const int64_t *weights) {
    const lookup_thresholds *t = tier == 0 ? &a->params.context : &a->params.dynamic;
    for (size_t order = least(known, LOOKUP_MAX_ORDER); order >= 1; --order) {
        int64_t counts[MAX_VOCAB] = {0};
        const int32_t *gram = end - order;
        if (tier == 0) count_followers(a, tokens, n, gram, order, counts);
        else {
            count_followers(a, a->dynamic_text, a->dynamic_seam, gram, order, counts);
            count_followers(a, a->dynamic_text + a->dynamic_seam, a->n_dynamic - a->dynamic_seam, gram, order, counts);
        }
        int32_t best = decide(a, counts, weights, t->samples[order - 1], t->percent[order - 1]);
        if (best >= 0) return best;
    }
    return -1;
}

static void model_cache(const arrangement *a, const int32_t *tokens, size_t n, size_t room, drafted *out) {
    if (n < 2) return;
    int32_t *text = test_memory(4 * (n + room));
    const int64_t even[MAX_VOCAB] = {0};
    memcpy(text, tokens, 4 * n);
    while (out->n < room) {
        const int32_t *end = text + n + out->n;
        int64_t part[MAX_VOCAB] = {0};
        if (a->static_text) count_followers(a, a->static_text, a->n_static, end - 2, 2, part);
        uint8_t tier = LOOKUP_TIER_CONTEXT;
        int32_t best = decide_tier(a, 0, tokens, n, end, n + out->n, part);
        if (best < 0 && a->dynamic) {
            tier = LOOKUP_TIER_DYNAMIC;
            best = decide_tier(a, 1, tokens, n, end, n + out->n, part);
        }
        if (best < 0 && a->static_text) {
            tier = LOOKUP_TIER_STATIC;
            best = decide(a, part, even, a->params.static_samples, a->params.static_percent);
        }
        if (best < 0) break;
        out->tiers[out->n] = tier;
        text[n + out->n] = out->tokens[out->n] = best + a->base;
        out->n++;
    }
    test_free(text);
}

static void check_equal(const drafted *d, const drafted *model) {
    MUST(d->n == model->n);
    MUST(same(d->tokens, model->tokens, d->n));
    MUST(memcmp(d->tiers, model->tiers, d->n) == 0);
}

static bool stands_in(const int32_t *text, size_t n, const drafted *d) {
    for (size_t i = 0; i + d->n <= n; ++i)
        if (same(text + i, d->tokens, d->n)) return true;
    return false;
}

void check_draft(const arrangement *a, size_t number, const int32_t *tokens, size_t n, size_t room, const drafted *d) {
    const member *m = &a->members[number];
    drafted model;
    memset(&model, 0, sizeof model);
    MUST(d->n <= room);
    for (size_t i = 0; i < d->n; ++i) {
        MUST(d->tokens[i] >= a->base && d->tokens[i] < a->base + a->vocab);
        MUST(m->kind == CACHE || d->tiers[i] == 0);
    }
    switch (m->kind) {
    case SIMPLE: model_simple(&m->params.simple, tokens, n, room, &model); break;
    case SUFFIX: model_suffix(&m->params.suffix, tokens, n, room, &model); break;
    case CACHE: model_cache(a, tokens, n, room, &model); break;
    case MAP: MUST(stands_in(tokens, n, d)); return;
    case MOD: MUST(d->n <= (size_t)m->params.mod.n_max); return;
    case KINDS:
    default: return;
    }
    check_equal(d, &model);
}
