/* source_cache.c, replay.c against the rules written down the dull way */
#include <string.h>

#include "suites.h"
#include "support.h"

#define VOCAB 12
#define DRAFT 6
#define NONE (-1)

typedef struct {
    const int32_t *text;
    size_t n;
} stream;

/* counts[y] = how often y follows the last `order` tokens of `history` in `s`. */
static uint64_t count_after(const stream *s, const int32_t *history, size_t n, size_t order, uint64_t *counts) {
    uint64_t total = 0;
    memset(counts, 0, VOCAB * sizeof *counts);
    for (size_t i = order; i < s->n; ++i) {
        if (memcmp(s->text + i - order, history + n - order, 4 * order) != 0) continue;
        counts[s->text[i]]++;
        total++;
    }
    return total;
}

/* The best follower by count times weight, lowest token on ties. */
static int32_t best_of(const uint64_t *counts, const uint64_t *fixed) {
    uint64_t best = 0;
    int32_t token = NONE;
    for (int32_t y = 0; y < VOCAB; ++y) {
        uint64_t score = counts[y] * (fixed[y] > 0 ? 100 * fixed[y] : 1);
        if (score <= best) continue;
        best = score;
        token = y;
    }
    return token;
}

static int32_t dull_tier(const stream *s, const lookup_thresholds *th, const int32_t *history, size_t n, const uint64_t *fixed) {
    for (size_t order = n < 4 ? n : 4; order >= 1; --order) {
        uint64_t counts[VOCAB], max = 0, samples = (uint64_t)th->samples[order - 1], percent = (uint64_t)th->percent[order - 1];
        uint64_t total = count_after(s, history, n, order, counts);
        for (int y = 0; y < VOCAB; ++y) max = counts[y] > max ? counts[y] : max;
        if (total == 0 || total < samples || 100 * max < percent * total) continue;
        int32_t token = best_of(counts, fixed);
        if (100 * counts[token] >= percent * total) return token;
    }
    return NONE;
}

typedef struct {
    lookup_cache_params params;
    stream dynamic, fixed; /* n 0: none */
} dull;

/* `history` has room for what is drafted; the context counts only its first `n` tokens. */
static size_t dull_draft(const dull *d, int32_t *history, size_t n, int32_t *draft, uint8_t *tiers) {
    static const uint64_t NOTHING[VOCAB] = {0};
    stream context = {history, n};
    size_t k = 0;
    for (; n >= 2 && k < DRAFT; ++k) {
        uint64_t fixed[VOCAB], total = count_after(&d->fixed, history, n + k, 2, fixed);
        int32_t token = dull_tier(&context, &d->params.context, history, n + k, fixed);
        tiers[k] = LOOKUP_TIER_CONTEXT;
        if (token == NONE) {
            token = dull_tier(&d->dynamic, &d->params.dynamic, history, n + k, fixed);
            tiers[k] = LOOKUP_TIER_DYNAMIC;
        }
        if (token == NONE && total >= 2) {
            int32_t best = best_of(fixed, NOTHING);
            if (100 * fixed[best] >= 50 * total) token = best;
            tiers[k] = LOOKUP_TIER_STATIC;
        }
        if (token == NONE) break;
        draft[k] = history[n + k] = token;
    }
    return k;
}

static lookup_table *table_of(const stream *s, const lookup_thresholds *th, bool index_first) {
    lookup_table *t = NULL;
    EXPECT(lookup_table_new(&t) == LOOKUP_OK);
    if (index_first) EXPECT(lookup_table_index(t, th) == LOOKUP_OK);
    EXPECT(lookup_table_update(t, s->text, s->n) == LOOKUP_OK);
    if (!index_first) {
        EXPECT(lookup_table_index(t, th) == LOOKUP_OK);
        return t;
    }
    lookup_table_reset(t); /* keeps the index, empty */
    EXPECT(lookup_table_update(t, s->text, s->n) == LOOKUP_OK);
    return t;
}

static void drafts_agree(lookup_source *source, const dull *d, const int32_t *text, size_t n) {
    int32_t mine[DRAFT], theirs[DRAFT], *room = test_memory(4 * (n + DRAFT));
    uint8_t my_tiers[DRAFT], their_tiers[DRAFT];
    size_t same = 0;
    EXPECT(lookup_source_begin(source, text, n / 4) == LOOKUP_OK);
    for (size_t at = n / 4; at <= n; ++at) {
        size_t n_mine = 99;
        int32_t *exact = test_copy(text, 4 * at);
        memcpy(room, text, 4 * at);
        EXPECT(lookup_source_draft(source, exact, at, mine, my_tiers, DRAFT, &n_mine) == LOOKUP_OK);
        size_t n_theirs = dull_draft(d, room, at, theirs, their_tiers);
        same += n_mine == n_theirs && memcmp(mine, theirs, 4 * n_theirs) == 0 && memcmp(my_tiers, their_tiers, n_theirs) == 0;
        EXPECT(lookup_source_accept(source, 0) == LOOKUP_OK);
        test_free(exact);
    }
    EXPECT(same == n - n / 4 + 1);
    test_free(room);
}

/* All combinations of tiers, twice with the same source: the second text must not see the first. */
static void drafts_like_the_dull_way(void) {
    int32_t *old = make_text(900, VOCAB, 90), *corpus = make_text(2000, VOCAB, 91);
    blob file = {NULL, 0};
    lookup_static cache;
    REQUIRE(make_cache(corpus, 2000, VOCAB, &file) == LOOKUP_OK);
    REQUIRE(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    for (int tiers = 0; tiers < 8; ++tiers) {
        dull d = {.dynamic = {old, tiers & 1 ? 900 : 0}, .fixed = {corpus, tiers & 2 ? 2000 : 0}};
        lookup_cache_defaults(&d.params);
        lookup_table *dynamic = tiers & 1 ? table_of(&d.dynamic, &d.params.dynamic, (tiers & 4) != 0) : NULL;
        lookup_source *source = NULL;
        REQUIRE(lookup_source_ngram_cache(&d.params, tiers & 2 ? &cache : NULL, dynamic, &source) == LOOKUP_OK);
        for (uint64_t round = 0; round < 3; ++round) {
            size_t n = round == 1 ? 90 : 260;
            int32_t *text = make_text(n, VOCAB, 92 + round);
            drafts_agree(source, &d, text, n);
            test_free(text);
        }
        lookup_source_free(source);
        lookup_table_free(dynamic);
    }
    blob_free(&file);
    test_free(old);
    test_free(corpus);
}

/* Only 2-grams draft, so that the counts below decide alone. */
/* A text cut back anywhere, and continued otherwise, drafts like one that never said the rest. */
static void a_text_cut_back_is_forgotten(void) {
    lookup_cache_params params;
    lookup_cache_defaults(&params);
    lookup_source *cut = NULL, *fresh = NULL;
    REQUIRE(lookup_source_ngram_cache(&params, NULL, NULL, &cut) == LOOKUP_OK);
    REQUIRE(lookup_source_ngram_cache(&params, NULL, NULL, &fresh) == LOOKUP_OK);
    enum { LENGTH = 120 };
    size_t kept = 0, n_mine = 0, n_theirs = 0, drafts = 0;
    int32_t mine[DRAFT], theirs[DRAFT], said[LENGTH];
    for (uint64_t round = 0; round < 400; ++round) {
        int32_t *more = make_text(LENGTH, 1 + (int32_t)(round % 5), 300 + round);
        memcpy(said + kept, more + kept, 4 * (LENGTH - kept));
        test_free(more);
        size_t n = kept + (round * 37) % (LENGTH - kept + 1);
        EXPECT(lookup_source_draft(cut, said, n, mine, NULL, DRAFT, &n_mine) == LOOKUP_OK);
        EXPECT(lookup_source_begin(fresh, said, n) == LOOKUP_OK);
        EXPECT(lookup_source_draft(fresh, said, n, theirs, NULL, DRAFT, &n_theirs) == LOOKUP_OK);
        EXPECT(n_mine == n_theirs && memcmp(mine, theirs, 4 * n_mine) == 0);
        drafts += n_mine > 0;
        kept = round % 7 == 0 ? n : round % 11 == 0 ? 0 : n - n / (2 + round % 9);
        EXPECT(lookup_source_truncate(cut, said, kept) == LOOKUP_OK);
    }
    EXPECT(drafts > 100);
    EXPECT(lookup_source_truncate(cut, NULL, 3) == LOOKUP_E_ARGUMENT);
    lookup_source_free(cut);
    lookup_source_free(fresh);
}

static void common_prefixes(void) {
    enum { N = 3000 };
    int32_t *a = make_text(N, 9, 5), *b = test_copy(a, 4 * N);
    EXPECT(lookup_common_prefix(a, b, N) == N && lookup_common_prefix(a, b, 0) == 0);
    for (size_t at = 0; at < N; at += at < 1020 ? 93 : 1) {
        b[at]++;
        EXPECT(lookup_common_prefix(a, b, N) == at && lookup_common_prefix(a, b, at) == at);
        b[at]--;
    }
    EXPECT(lookup_common_prefix(NULL, b, 5) == 0);
    test_free(a);
    test_free(b);
}

static lookup_cache_params two_grams_only(void) {
    lookup_cache_params p;
    lookup_cache_defaults(&p);
    p.context = (lookup_thresholds){{INT32_MAX, 2, INT32_MAX, INT32_MAX}, {100, 40, 100, 100}};
    p.dynamic = p.context;
    return p;
}

/* A static file in which 5 follows (1, 2) twice and 9 700,000 times. */
static void heavy_static(blob *file) {
    const int32_t ngram[] = {1, 2}, entries[] = {5, 2, 9, 700000};
    const uint32_t length = 2;
    EXPECT(make_static(ngram, &length, entries, 1, 2, file) == LOOKUP_OK);
}

/* Pitfall 11: 40 * 100 * 700,000 does not fit 32 bits; token 5 would win there. */
static void scores_do_not_overflow(void) {
    enum { REPEATS = 40, N = 6 * REPEATS + 2 };
    blob file = {NULL, 0};
    lookup_static cache;
    heavy_static(&file);
    REQUIRE(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    int32_t text[N], draft[1] = {NONE};
    for (int i = 0; i < N; ++i) text[i] = (const int32_t[]){1, 2, 9, 1, 2, 5}[i % 6];
    lookup_cache_params p = two_grams_only();
    lookup_source *source = NULL;
    size_t n = 0;
    uint8_t tier = 9;
    REQUIRE(lookup_source_ngram_cache(&p, NULL, NULL, &source) == LOOKUP_OK);
    EXPECT(lookup_source_draft(source, text, N, draft, &tier, 1, &n) == LOOKUP_OK && n == 1 && draft[0] == 5);
    lookup_source_free(source);
    REQUIRE(lookup_source_ngram_cache(&p, &cache, NULL, &source) == LOOKUP_OK);
    EXPECT(lookup_source_draft(source, text, N, draft, &tier, 1, &n) == LOOKUP_OK);
    EXPECT(n == 1 && draft[0] == 9 && tier == LOOKUP_TIER_CONTEXT);
    lookup_source_free(source);
    lookup_table *dynamic = table_of(&(stream){text, N}, &p.dynamic, false);
    REQUIRE(lookup_source_ngram_cache(&p, &cache, dynamic, &source) == LOOKUP_OK);
    EXPECT(lookup_source_draft(source, text, 2, draft, &tier, 1, &n) == LOOKUP_OK);
    EXPECT(n == 1 && draft[0] == 9 && tier == LOOKUP_TIER_DYNAMIC);
    lookup_source_free(source);
    lookup_table_free(dynamic);
    blob_free(&file);
}

/* Pitfall 12: what is drafted from 0, 1, 2 and 3 tokens, which stand in memory of just that size. */
static void short_histories(void) {
    const int32_t text[] = {7, 1, 2};
    blob file = {NULL, 0};
    lookup_static cache;
    heavy_static(&file);
    REQUIRE(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    const int32_t longer[] = {7, 1, 2, 4, 7, 1, 2, 4, 7, 1, 2, 4};
    lookup_cache_params p;
    lookup_cache_defaults(&p);
    lookup_table *dynamic = table_of(&(stream){longer, 12}, &p.dynamic, false);
    lookup_source *source = NULL;
    REQUIRE(lookup_source_ngram_cache(&p, &cache, dynamic, &source) == LOOKUP_OK);
    static const size_t WANTED[] = {0, 0, 3, 3}; /* (7 1) -> 2 4 7, (7 1 2) -> 4 7 1 */
    for (size_t n = 0; n <= 3; ++n) {
        int32_t *exact = test_copy(text, 4 * n), draft[3];
        size_t n_draft = 9;
        EXPECT(lookup_source_begin(source, exact, n) == LOOKUP_OK);
        EXPECT(lookup_source_draft(source, exact, n, draft, NULL, 3, &n_draft) == LOOKUP_OK);
        EXPECT(n_draft == WANTED[n]);
        if (n == 2) EXPECT(draft[0] == 2 && draft[1] == 4 && draft[2] == 7);
        if (n == 3) EXPECT(draft[0] == 4 && draft[1] == 7 && draft[2] == 1);
        test_free(exact);
    }
    EXPECT(lookup_source_begin(source, text + 1, 2) == LOOKUP_OK);
    EXPECT(lookup_source_begin(source, NULL, 0) == LOOKUP_OK);
    lookup_source_free(source);
    lookup_source_free(NULL);
    lookup_table_free(dynamic);
    blob_free(&file);
}

static void replay_adds_up(void) {
    int32_t *text = make_text(1000, VOCAB, 95);
    lookup_cache_params p;
    lookup_cache_defaults(&p);
    lookup_source *source = NULL;
    lookup_replay_stats *st = test_memory(sizeof *st);
    REQUIRE(lookup_source_ngram_cache(&p, NULL, NULL, &source) == LOOKUP_OK);
    for (size_t prompt = 0; prompt < 1000; prompt += 333) {
        memset(st, 0, sizeof *st);
        EXPECT(lookup_replay_chunk(source, text, 1000, prompt, 8, st) == LOOKUP_OK);
        uint64_t steps = 0, accepted = 0;
        for (size_t i = 0; i <= 8; ++i) {
            steps += st->accepted_length[i];
            accepted += i * st->accepted_length[i];
        }
        EXPECT(steps == st->n_decode && accepted == st->n_accept && st->n_accept <= st->n_drafted);
        EXPECT(st->n_produced == 999 - prompt);
        EXPECT(st->n_produced <= st->n_decode + st->n_accept && st->n_produced + 1 >= st->n_decode + st->n_accept);
        for (size_t i = 1; i < 8; ++i) EXPECT(st->accepted_at[i] <= st->accepted_at[i - 1]);
        EXPECT((st->n_accept > 0) == (prompt < 999) && st->acc_tokens == st->n_accept && st->gen_drafts == st->drafted_steps);
    }
    EXPECT(lookup_replay_chunk(source, text, 1, 0, 8, st) == LOOKUP_OK);
    EXPECT(lookup_replay_chunk(source, text, 1, 1, 8, st) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_replay_chunk(source, text, 9, 0, 0, st) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_replay_chunk(source, text, 9, 0, LOOKUP_MAX_DRAFT + 1, st) == LOOKUP_E_ARGUMENT);
    test_free(st);
    lookup_source_free(source);
    test_free(text);
}

static void sources_refuse(void) {
    lookup_cache_params p;
    lookup_source *source = NULL;
    lookup_table *plain = NULL;
    int32_t text[] = {1, 2, 3}, draft[4];
    size_t n = 0;
    lookup_cache_defaults(&p);
    REQUIRE(lookup_table_new(&plain) == LOOKUP_OK);
    EXPECT(lookup_source_ngram_cache(&p, NULL, plain, &source) == LOOKUP_E_ARGUMENT); /* not indexed */
    REQUIRE(lookup_source_ngram_cache(&p, NULL, NULL, &source) == LOOKUP_OK);
    EXPECT(lookup_source_draft(source, text, 3, draft, NULL, 4, &n) == LOOKUP_OK);
    EXPECT(lookup_source_draft(source, text, 2, draft, NULL, 4, &n) == LOOKUP_E_ARGUMENT); /* shrinks */
    EXPECT(lookup_source_draft(source, text, 3, NULL, NULL, 4, &n) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_source_draft(source, text, 3, draft, NULL, LOOKUP_MAX_DRAFT + 1, &n) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_source_draft(source, text, 3, NULL, NULL, 0, &n) == LOOKUP_OK && n == 0);
    lookup_source_free(source);
    p.static_percent = 101;
    EXPECT(lookup_source_ngram_cache(&p, NULL, NULL, &source) == LOOKUP_E_ARGUMENT);
    lookup_table_free(plain);
}

/* A call that failed half-way must not count its tokens again when they come once more. */
static void a_failed_call_leaves_no_trace(void) {
    lookup_cache_params p;
    lookup_source *source = NULL;
    int32_t text[] = {1, 2, -1}, draft[4];
    size_t n = 9;
    lookup_cache_defaults(&p);
    p.context.samples[0] = p.context.samples[1] = 1;
    REQUIRE(lookup_source_ngram_cache(&p, NULL, NULL, &source) == LOOKUP_OK);
    EXPECT(lookup_source_draft(source, text, 3, draft, NULL, 4, &n) == LOOKUP_E_TOKEN);
    EXPECT(lookup_source_draft(source, text, 2, draft, NULL, 4, &n) == LOOKUP_OK && n == 0); /* not 1 2 1 2 */
    lookup_source_free(source);
}

void suite_draft(void) {
    RUN(drafts_like_the_dull_way);
    RUN(a_text_cut_back_is_forgotten);
    RUN(common_prefixes);
    RUN(scores_do_not_overflow);
    RUN(short_histories);
    RUN(replay_adds_up);
    RUN(sources_refuse);
    RUN(a_failed_call_leaves_no_trace);
}
