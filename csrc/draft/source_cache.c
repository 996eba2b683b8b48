/* The `ngram-cache` source: context, dynamic and static tier (drafting.md, section 2).
 *
 * Per token only what can change the answer is looked at. The context's n-grams of the current
 * position are nodes the update has just visited; an n-gram with one follower, or without a static
 * part, is decided by its stored total, maximum and best follower; the static part is fetched only
 * when its weights or its own tier matter, and remembered with its total, maximum and best. */
#include "source.h"
#include "../core/static.h"
#include "../core/table.h"

/* A static part once looked up: a direct-mapped memo of recent 2-grams. */
typedef struct {
    uint64_t tag; /* its 2-gram's key + 1; 0 is a free place, so that fresh pages stay untouched */
    uint64_t offset;
    uint32_t length; /* 0: absent */
    uint32_t total;  /* saturating */
    int32_t max;
    int32_t best;    /* lowest id among the largest counts */
} part;

typedef struct {
    lookup_source base;
    lookup_cache_params params;
    const lookup_static *cache;
    const lookup_table *dynamic;
    lookup_table *context;
    size_t seen; /* tokens the context has counted */
    part *memo;      /* by 2-gram */
    part *long_memo; /* by span, long ones only: what a look-up may cost again, a scan may not */
} cache_source;

#define LONG_PART 32 /* followers; more than four cache lines */
#define LONG_MEMO_BITS 11

/* A position in the text, real or drafted: its context nodes and its last tokens. */
typedef struct {
    uint32_t nodes[STATES]; /* nodes[k]: the last k tokens, ROOT from `depth`+1 on */
    uint32_t depth;
    int32_t recent[LOOKUP_MAX_ORDER]; /* most recent first */
    int32_t known;                    /* how many of them exist */
} cursor;

#define NONE (-1)

void lookup_cache_defaults(lookup_cache_params *p) {
    if (p == NULL) return;
    *p = (lookup_cache_params){
        .context = {.samples = {2, 2, 1, 1}, .percent = {66, 50, 50, 50}},
        .dynamic = {.samples = {4, 3, 2, 2}, .percent = {75, 66, 66, 66}},
        .static_samples = 2,
        .static_percent = 50,
    };
}

/* Sum and maximum in one pass that vectorizes; the first entry with the maximum, which is the lowest
 * token, in another that usually ends early. */
static void summarise(const lookup_static *cache, part *p) {
    const unsigned char *e = cache->entries + 8 * p->offset;
    uint64_t total = 0;
    int32_t max = 0;
    for (uint32_t i = 0; i < p->length; ++i) {
        int32_t count = entry_count(e, i);
        count = count > 0 ? count : 0; /* hostile: `verify` refuses it */
        max = count > max ? count : max;
        total += (uint32_t)count;
    }
    uint32_t at = 0;
    while (at < p->length && entry_count(e, at) < max) ++at;
    p->max = max;
    p->best = max > 0 ? entry_token(e, at) : NONE;
    p->total = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
}

INLINE part *memo_at(const cache_source *s, uint64_t key) {
    return &s->memo[(key * 0x9E3779B97F4A7C15ull) >> (64 - LOOKUP_MEMO_BITS)];
}
INLINE part *long_memo_at(const cache_source *s, uint64_t offset) {
    return &s->long_memo[(offset * 0x9E3779B97F4A7C15ull) >> (64 - LONG_MEMO_BITS)];
}

/* The static part of the last two tokens. A value that points outside the entries counts as absent:
 * only `verify` can tell whose fault it is, and a draft need not be right. */
static const part *static_part(const cache_source *s, const cursor *at) {
    uint64_t key = key_of(at->recent[1], at->recent[0]), value = 0;
    part *p = memo_at(s, key);
    if (LIKELY(p->tag == key + 1)) return p;
    span where = {0, 0};
    if (!map_get(&s->cache->map, key, &value) || !span_of(s->cache, value, &where)) where.length = 0;
    part fresh = {.tag = key + 1, .offset = where.offset, .length = (uint32_t)where.length};
    part *known = where.length >= LONG_PART ? long_memo_at(s, where.offset) : NULL;
    if (known != NULL && known->length == fresh.length && known->offset == fresh.offset) {
        *p = *known;
        p->tag = key + 1;
        return p;
    }
    summarise(s->cache, &fresh);
    if (known != NULL) *known = fresh;
    *p = fresh;
    return p;
}

/* Starts fetching what static_part will read, as soon as the last two tokens are known. */
INLINE void prefetch_part(const cache_source *s, int32_t before, int32_t last) {
    uint64_t key = key_of(before, last);
    if (memo_at(s, key)->tag == key + 1 || s->cache->map.slots == 0) return;
    uint64_t m = mixed(key, s->cache->map.seed, s->cache->map.hash);
    triple t = slots_of(m, s->cache->map.span, s->cache->map.segment_length);
    map_prefetch(&s->cache->map, &t);
}

__extension__ typedef unsigned __int128 score;

/* Scores every follower of `g` by count and static weight; its best, if that one has the share. */
static int32_t weighted(const cache_source *s, const lookup_table *t, const node *g, const part *p, int32_t percent) {
    const unsigned char *e = s->cache->entries + 8 * p->offset;
    score best_score = 0;
    int64_t best = INT64_MAX, best_count = 0;
    for (uint32_t id = g->first; id != ROOT; id = t->nodes[id].next) {
        const node *f = &t->nodes[id];
        int32_t known = find_entry(e, p->length, (int32_t)f->token);
        score here = (score)f->count * (known > 0 ? 100 * (uint64_t)known : 1);
        if (here < best_score || (here == best_score && f->token >= best)) continue;
        best_score = here;
        best = f->token;
        best_count = f->count;
    }
    return 100 * (uint64_t)best_count >= (uint64_t)percent * g->total ? (int32_t)best : NONE;
}

/* What an n-gram that passed its thresholds drafts. Its most frequent follower wins unless static
 * weights can lift another one above it. */
INLINE int32_t choose(const cache_source *s, const lookup_table *t, const node *g, const cursor *at, int32_t percent) {
    if (g->max == g->total || s->cache == NULL) return (int32_t)g->best;
    const part *p = static_part(s, at);
    if (p->length == 0 || p->best == (int32_t)g->best) return (int32_t)g->best;
    return weighted(s, t, g, p, percent);
}

INLINE int32_t from_context(const cache_source *s, const cursor *at) {
    for (int order = (int)at->depth; order >= 1; --order) {
        const node *g = &s->context->nodes[at->nodes[order]];
        if (!trusted(&s->params.context, order, g->total, g->max)) continue;
        int32_t token = choose(s, s->context, g, at, s->params.context.percent[order - 1]);
        if (token != NONE) return token;
    }
    return NONE;
}

INLINE int32_t from_dynamic(const cache_source *s, const cursor *at) {
    const decision_index *x = s->dynamic->index;
    if (x->used == 0) return NONE;
    uint64_t h[STATES] = {0};
    for (int k = 1; k <= at->known; ++k) h[k] = gram_hash(h[k - 1], at->recent[k - 1]);
    for (int order = at->known; order >= 1; --order) {
        const index_entry *e = index_find(x, h[order], at->recent, order);
        if (e == NULL || e->best < 0) continue;
        if (e->node == 0) return e->best;
        int32_t token = choose(s, s->dynamic, &s->dynamic->nodes[e->node], at, x->thresholds.percent[order - 1]);
        if (token != NONE) return token;
    }
    return NONE;
}

INLINE int32_t from_static(const cache_source *s, const cursor *at) {
    const part *p = static_part(s, at);
    if (p->length == 0 || p->best < 0 || p->total < (uint32_t)s->params.static_samples) return NONE;
    return 100 * (uint64_t)p->max >= (uint64_t)s->params.static_percent * p->total ? p->best : NONE;
}

INLINE int32_t next_token(const cache_source *s, const cursor *at, uint8_t *tier) {
    int32_t token = from_context(s, at);
    *tier = LOOKUP_TIER_CONTEXT;
    if (token == NONE && s->dynamic != NULL) {
        token = from_dynamic(s, at);
        *tier = LOOKUP_TIER_DYNAMIC;
    }
    if (token == NONE && s->cache != NULL) {
        token = from_static(s, at);
        *tier = LOOKUP_TIER_STATIC;
    }
    return token;
}

/* Moves on by one drafted token. Every n-gram of a stream has its suffixes in the table too, so the
 * first absence ends the search. */
INLINE void advance(const cache_source *s, cursor *at, int32_t token) {
    uint32_t next[STATES] = {ROOT}, depth = 0;
    for (uint32_t k = 0; k <= at->depth && k < LOOKUP_MAX_ORDER; ++k) {
        uint32_t id = table_find(s->context, at->nodes[k], (uint32_t)token);
        if (id == ROOT) break;
        next[k + 1] = id;
        depth = k + 1;
    }
    memcpy(at->nodes, next, sizeof next);
    at->depth = depth;
    for (int k = LOOKUP_MAX_ORDER - 1; k > 0; --k) at->recent[k] = at->recent[k - 1];
    at->recent[0] = token;
    at->known += at->known < LOOKUP_MAX_ORDER;
}

static lookup_status catch_up(cache_source *s, const int32_t *tokens, size_t n) {
    CHECK(n >= s->seen, LOOKUP_E_ARGUMENT);
    if (s->cache != NULL && n >= 2) prefetch_part(s, tokens[n - 2], tokens[n - 1]);
    for (; s->seen < n; ++s->seen) { /* so that a failed call can be repeated */
        CHECK(tokens[s->seen] >= 0, LOOKUP_E_TOKEN);
        TRY(lookup_table_push(s->context, tokens[s->seen]));
    }
    return LOOKUP_OK;
}

static lookup_status cache_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    cache_source *s = (cache_source *)source;
    lookup_table_reset(s->context);
    s->seen = 0;
    return catch_up(s, tokens, n);
}

static lookup_status cache_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                                 uint8_t *tiers, size_t capacity, size_t *n_draft) {
    cache_source *s = (cache_source *)source;
    TRY(catch_up(s, tokens, n));
    if (n < 2) return LOOKUP_OK;
    cursor at = {.depth = s->context->depth, .known = n < LOOKUP_MAX_ORDER ? (int32_t)n : LOOKUP_MAX_ORDER};
    memcpy(at.nodes, s->context->state, sizeof at.nodes);
    memcpy(at.recent, s->context->recent, sizeof at.recent);
    size_t drafted = 0;
    while (drafted < capacity) {
        int32_t token = next_token(s, &at, &tiers[drafted]);
        if (token == NONE) break;
        draft[drafted++] = token;
        if (drafted == capacity) break;
        if (s->cache != NULL) prefetch_part(s, at.recent[0], token);
        advance(s, &at, token);
    }
    *n_draft = drafted;
    return LOOKUP_OK;
}

static lookup_status cache_accept(lookup_source *source, size_t n_accepted) {
    (void)source;
    (void)n_accepted; /* what was really said arrives with the next call's tokens */
    return LOOKUP_OK;
}

static lookup_status cache_truncate(lookup_source *source, const int32_t *tokens, size_t n) {
    cache_source *s = (cache_source *)source;
    if (s->seen > 2 * n) return cache_begin(source, tokens, n); /* counting the rest anew is less work */
    while (s->seen > n) lookup_table_pop(s->context, tokens, s->seen--);
    return LOOKUP_OK;
}

static void cache_free(lookup_source *source) {
    cache_source *s = (cache_source *)source;
    lookup_table_free(s->context);
    lookup_free(s->memo);
    lookup_free(s->long_memo);
    lookup_free(s);
}

static const source_calls CALLS = {cache_free, cache_begin, cache_draft, cache_accept, cache_truncate};

lookup_status lookup_source_ngram_cache(const lookup_cache_params *params, const lookup_static *static_cache,
                                        const lookup_table *dynamic, lookup_source **source) {
    CHECK(params != NULL && source != NULL && lookup_thresholds_valid(&params->context), LOOKUP_E_ARGUMENT);
    CHECK(params->static_samples >= 1 && params->static_percent >= 0 && params->static_percent <= 100, LOOKUP_E_ARGUMENT);
    CHECK(dynamic == NULL || dynamic->index != NULL, LOOKUP_E_ARGUMENT);
    cache_source *s = lookup_alloc(1, sizeof *s);
    CHECK(s != NULL, LOOKUP_E_MEMORY);
    s->base.calls = &CALLS;
    s->params = *params;
    s->cache = static_cache;
    s->dynamic = dynamic;
    lookup_status status = lookup_table_new(&s->context);
    if (status == LOOKUP_OK && static_cache != NULL) {
        s->memo = lookup_alloc((size_t)1 << LOOKUP_MEMO_BITS, sizeof *s->memo);
        s->long_memo = lookup_alloc((size_t)1 << LONG_MEMO_BITS, sizeof *s->long_memo);
        if (s->memo == NULL || s->long_memo == NULL) status = LOOKUP_E_MEMORY;
    }
    if (status != LOOKUP_OK) {
        cache_free(&s->base);
        return status;
    }
    *source = &s->base;
    return LOOKUP_OK;
}
