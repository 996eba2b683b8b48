/* pack.c, radix.c, runs.c */
#include <stdlib.h>
#include <string.h>

#include "suites.h"
#include "support.h"

#define PARTITIONS (1u << LOOKUP_PARTITION_BITS)
#define N_WIDTHS 12

/* Layouts of every key width, plain and counted, with and without spare top bits. */
static lookup_layout layout_number(int i) {
    static const int32_t SHAPES[6][2] = {{1, 9}, {2, 17}, {4, 20}, {3, 31}, {4, 31}, {4, 1}};
    lookup_layout l;
    int32_t bits = SHAPES[i / 2][1];
    EXPECT(lookup_layout_for(&l, SHAPES[i / 2][0], (int32_t)((1ull << bits) - 1), i % 2) == LOOKUP_OK);
    return l;
}

static const lookup_layout *sorting;

static int compare_records(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    for (int w = 0; w < sorting->stride; ++w)
        if (x[w] != y[w]) return x[w] < y[w] ? -1 : 1;
    return 0;
}

/* `n` records whose keys fill `key_mask`'s share of the layout's bits; the count tells them apart. */
static uint64_t *random_records(const lookup_layout *l, size_t n, uint64_t key_mask, rng *r) {
    uint64_t *records = test_memory(8 * n * (size_t)l->stride);
    int top = l->bits * (l->order + 1) - 64 * (l->key_words - 1);
    for (size_t i = 0; i < n; ++i) {
        uint64_t *to = records + i * (size_t)l->stride;
        for (int w = 0; w < l->key_words; ++w) to[w] = rng_next(r) & key_mask;
        if (top < 64) to[0] &= (1ull << top) - 1;
        if (l->stride > l->key_words) to[l->key_words] = 1 + rng_below(r, 9);
    }
    return records;
}

/* Equal keys keep no order, so both sides are put in full record order after the keys were checked. */
static void sorted_like_qsort(const lookup_layout *l, size_t n, uint64_t mask, rng *r) {
    uint64_t *mine = random_records(l, n, mask, r), *scratch = test_memory(8 * n * (size_t)l->stride);
    uint64_t *theirs = test_copy(mine, 8 * n * (size_t)l->stride);
    REQUIRE(lookup_sort(l, mine, scratch, n) == LOOKUP_OK);
    size_t s = (size_t)l->stride;
    bool ascending = true;
    for (size_t i = 1; i < n; ++i) {
        int order = 0;
        for (int w = 0; w < l->key_words && order == 0; ++w)
            order = (mine[s * i + (size_t)w] > mine[s * (i - 1) + (size_t)w]) - (mine[s * i + (size_t)w] < mine[s * (i - 1) + (size_t)w]);
        ascending &= order >= 0;
    }
    EXPECT(ascending);
    sorting = l;
    qsort(mine, n, 8 * s, compare_records);
    qsort(theirs, n, 8 * s, compare_records);
    EXPECT(memcmp(mine, theirs, 8 * s * n) == 0);
    test_free(mine);
    test_free(theirs);
    test_free(scratch);
}

static void sort_every_width_and_size(void) {
    static const size_t SIZES[] = {1, 2, 3, 47, 48, 49, 255, 1000, 8191, 8192, 8193, 16384, 40000};
    static const uint64_t MASKS[] = {~0ull, 0xff, 0xff00000000000000ull, 0, 0x0f0f000000000001ull};
    rng r = {11};
    for (int i = 0; i < N_WIDTHS; ++i) {
        lookup_layout l = layout_number(i);
        EXPECT(lookup_sort(&l, NULL, NULL, 0) == LOOKUP_OK);
        for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; ++k)
            for (size_t m = 0; m < sizeof MASKS / sizeof *MASKS; ++m) sorted_like_qsort(&l, SIZES[k], MASKS[m], &r);
    }
}

static void layouts(void) {
    lookup_layout l;
    EXPECT(lookup_layout_for(&l, 2, 151935, 1) == LOOKUP_OK && l.bits == 18 && l.key_words == 1 && l.stride == 2);
    EXPECT(lookup_layout_for(&l, 4, INT32_MAX, 0) == LOOKUP_OK && l.bits == 31 && l.key_words == 3 && l.stride == 3);
    EXPECT(lookup_layout_for(&l, 1, 0, 0) == LOOKUP_OK && l.bits == 1);
    EXPECT(lookup_layout_for(&l, 2, -1, 0) == LOOKUP_E_TOKEN);
    EXPECT(lookup_layout_for(&l, 0, 5, 0) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_layout_for(&l, 5, 5, 0) == LOOKUP_E_ARGUMENT);
    l = (lookup_layout){2, 18, 2, 2};
    EXPECT(lookup_sort(&l, NULL, NULL, 0) == LOOKUP_E_ARGUMENT);
}

static int32_t token_of(const uint64_t *key, const lookup_layout *l, int i) {
    int shift = (l->order - i) * l->bits;
    uint64_t value = 0;
    for (int bit = 0; bit < l->bits; ++bit) {
        int at = shift + bit, w = l->key_words - 1 - at / 64;
        value |= ((key[w] >> (at % 64)) & 1) << bit;
    }
    return (int32_t)value;
}

typedef struct {
    lookup_layout l;
    int32_t *tokens;
    int64_t ends[6];
    size_t n;
    uint64_t skip;
} packing;

/* Whether window `i` (its last token) lies in one document and is not skipped. */
static bool window_at(const packing *p, size_t i) {
    size_t start = 0;
    for (int d = 0; d < 6 && (size_t)p->ends[d] <= i; ++d) start = (size_t)p->ends[d];
    return i >= start + (size_t)p->l.order && i >= p->skip;
}

static void packed_like_the_dull_way(const packing *p) {
    size_t windows = 0, words = (size_t)p->l.key_words, s = words;
    for (size_t i = 0; i < p->n; ++i) windows += window_at(p, i);
    EXPECT(lookup_count_windows(p->ends, 6, p->l.order, p->skip) == windows);
    uint64_t *keys = test_memory(8 * words * windows), *starts = test_memory(8 * (PARTITIONS + 1));
    uint64_t *gathered = test_memory(8 * words * windows), *scratch = test_memory(8 * words * windows);
    REQUIRE(lookup_pack(&p->l, p->tokens, p->n, p->ends, 6, p->skip, keys, starts) == LOOKUP_OK);
    EXPECT(starts[0] == 0 && starts[PARTITIONS] == windows);
    const uint64_t *batches[] = {keys}, *batch_starts[] = {starts};
    REQUIRE(lookup_gather(batches, batch_starts, 1, 0, PARTITIONS, p->l.key_words, gathered) == LOOKUP_OK);
    EXPECT(memcmp(gathered, keys, 8 * words * windows) == 0);
    uint64_t sum_seen[5] = {0}, sum_wanted[5] = {0}; /* each column as a multiset */
    for (size_t i = 0; i < windows; ++i)
        for (int k = 0; k <= p->l.order; ++k) {
            uint64_t t = (uint64_t)token_of(keys + s * i, &p->l, k) + 1;
            sum_seen[k] += t * t * t * (k ? (uint64_t)token_of(keys + s * i, &p->l, k - 1) + 3 : 1);
        }
    for (size_t i = 0; i < p->n; ++i)
        for (int k = 0; k <= p->l.order && window_at(p, i); ++k) {
            const int32_t *at = p->tokens + i - (size_t)p->l.order + (size_t)k;
            uint64_t t = (uint64_t)at[0] + 1;
            sum_wanted[k] += t * t * t * (k ? (uint64_t)at[-1] + 3 : 1);
        }
    EXPECT(memcmp(sum_seen, sum_wanted, sizeof sum_seen) == 0);
    REQUIRE(lookup_sort(&p->l, gathered, scratch, windows) == LOOKUP_OK);
    for (size_t k = 0, lo = 0; k < PARTITIONS; lo = (size_t)starts[++k]) { /* partitions ascend */
        size_t n = (size_t)(starts[k + 1] - starts[k]);
        REQUIRE(lookup_sort(&p->l, keys + s * lo, scratch, n) == LOOKUP_OK);
    }
    EXPECT(memcmp(gathered, keys, 8 * words * windows) == 0);
    test_free(keys);
    test_free(starts);
    test_free(gathered);
    test_free(scratch);
}

static void pack_against_a_dull_model(void) {
    rng r = {21};
    static const int32_t TOP[] = {1, 300, 151935, INT32_MAX};
    for (int round = 0; round < 64; ++round) {
        packing p = {.n = rng_below(&r, 200)};
        int32_t top = TOP[round % 4];
        REQUIRE(lookup_layout_for(&p.l, 1 + round / 4 % 4, top, 0) == LOOKUP_OK);
        p.tokens = test_memory(4 * p.n);
        for (size_t i = 0; i < p.n; ++i) p.tokens[i] = (int32_t)rng_below(&r, (uint64_t)top + 1);
        for (int d = 0; d < 6; ++d) {
            size_t before = d ? (size_t)p.ends[d - 1] : 0;
            p.ends[d] = (int64_t)(d == 5 ? p.n : before + rng_below(&r, (p.n - before) / 2 + 1));
        }
        p.skip = round % 3 == 0 ? rng_below(&r, p.n + 1) : 0;
        packed_like_the_dull_way(&p);
        test_free(p.tokens);
    }
}

static void pack_refuses(void) {
    lookup_layout l;
    REQUIRE(lookup_layout_for(&l, 2, 100, 0) == LOOKUP_OK);
    uint64_t *starts = test_memory(8 * (PARTITIONS + 1)), keys[8];
    int32_t negative[] = {1, 2, -3, 4}, large[] = {1, 2, 128, 4}, good[] = {1, 2, 3, 4};
    int64_t ends[] = {4}, falling[] = {3, 2, 4}, short_end[] = {3};
    EXPECT(lookup_pack(&l, negative, 4, ends, 1, 0, keys, starts) == LOOKUP_E_TOKEN);
    EXPECT(lookup_pack(&l, large, 4, ends, 1, 0, keys, starts) == LOOKUP_E_TOKEN);
    EXPECT(lookup_pack(&l, good, 4, falling, 3, 0, keys, starts) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_pack(&l, good, 4, short_end, 1, 0, keys, starts) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_pack(&l, good, 4, ends, 1, 5, keys, starts) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_pack(&l, NULL, 0, NULL, 0, 0, NULL, starts) == LOOKUP_OK && starts[PARTITIONS] == 0);
    const uint64_t *batches[] = {NULL}, *batch_starts[] = {starts};
    EXPECT(lookup_gather(batches, batch_starts, 1, 0, PARTITIONS, 1, NULL) == LOOKUP_OK); /* an empty batch */
    test_free(starts);
}

/* Grouped and expanded again, the records are the aggregated ones. */
static void pack_group_expand_round_trip(void) {
    for (int32_t order = 1; order <= 4; ++order) {
        int32_t *text = make_text(3000, order == 1 ? INT32_MAX : 50 * order, (uint64_t)order);
        int32_t top = 0;
        for (size_t i = 0; i < 3000; ++i) top = text[i] > top ? text[i] : top;
        grouped g;
        lookup_layout counted, plain;
        REQUIRE(make_grouped(text, 3000, order, top, &g) == LOOKUP_OK);
        REQUIRE(lookup_layout_for(&counted, order, top, 1) == LOOKUP_OK && lookup_layout_for(&plain, order, top, 0) == LOOKUP_OK);
        int64_t ends[] = {3000};
        size_t n = 3000 - (size_t)order, n_out = 0, words = (size_t)plain.key_words;
        uint64_t *keys = test_memory(8 * n * words), *scratch = test_memory(8 * n * words);
        uint64_t *starts = test_memory(8 * (PARTITIONS + 1)), *sums = test_memory(8 * n * (words + 1));
        uint64_t *expanded = test_memory(8 * g.n_pairs * (words + 1));
        EXPECT(lookup_pack(&plain, text, 3000, ends, 1, 0, keys, starts) == LOOKUP_OK);
        EXPECT(lookup_sort(&plain, keys, scratch, n) == LOOKUP_OK);
        EXPECT(lookup_aggregate(&plain, keys, n, sums, &n_out) == LOOKUP_OK);
        EXPECT(lookup_expand(&counted, g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs, 1, 1, expanded) == LOOKUP_OK);
        EXPECT(n_out == g.n_pairs && memcmp(sums, expanded, 8 * n_out * (words + 1)) == 0);
        uint64_t total = 0;
        for (size_t p = 0; p < g.n_pairs; ++p) total += (uint64_t)g.entries[2 * p + 1];
        EXPECT(total == n);
        for (size_t k = 1; k < n_out; ++k) EXPECT(lookup_upper_bound(&counted, sums, n_out, sums + k * (words + 1)) == k + 1);
        test_free(keys);
        test_free(scratch);
        test_free(starts);
        test_free(sums);
        test_free(expanded);
        test_free(text);
        grouped_free(&g);
    }
}

static void merge_two_runs(void) {
    rng r = {31};
    for (int i = 1; i < N_WIDTHS; i += 2) {
        lookup_layout l = layout_number(i);
        size_t s = (size_t)l.stride, n = 300, n_a = 0, n_b = 0, n_ab = 0, n_all = 0;
        uint64_t *raw = random_records(&l, 2 * n, 0x7f, &r), *scratch = test_memory(16 * n * s);
        uint64_t *a = test_memory(8 * n * s), *b = test_memory(8 * n * s);
        uint64_t *ab = test_memory(16 * n * s), *all = test_memory(16 * n * s);
        REQUIRE(lookup_sort(&l, raw, scratch, n) == LOOKUP_OK && lookup_sort(&l, raw + n * s, scratch, n) == LOOKUP_OK);
        REQUIRE(lookup_aggregate(&l, raw, n, a, &n_a) == LOOKUP_OK && lookup_aggregate(&l, raw + n * s, n, b, &n_b) == LOOKUP_OK);
        REQUIRE(lookup_merge_two(&l, a, n_a, b, n_b, ab, &n_ab) == LOOKUP_OK);
        REQUIRE(lookup_sort(&l, raw, scratch, 2 * n) == LOOKUP_OK && lookup_aggregate(&l, raw, 2 * n, all, &n_all) == LOOKUP_OK);
        EXPECT(n_ab == n_all && memcmp(ab, all, 8 * n_all * s) == 0);
        EXPECT(lookup_merge_two(&l, a, n_a, NULL, 0, ab, &n_ab) == LOOKUP_OK && n_ab == n_a && memcmp(ab, a, 8 * n_a * s) == 0);
        EXPECT(lookup_merge_two(&l, NULL, 0, b, n_b, ab, &n_ab) == LOOKUP_OK && n_ab == n_b && memcmp(ab, b, 8 * n_b * s) == 0);
        EXPECT(lookup_merge_two(&l, NULL, 0, NULL, 0, NULL, &n_ab) == LOOKUP_OK && n_ab == 0);
        test_free(raw);
        test_free(scratch);
        test_free(a);
        test_free(b);
        test_free(ab);
        test_free(all);
    }
}

static void counts_saturate(void) {
    lookup_layout l;
    REQUIRE(lookup_layout_for(&l, 1, 100, 1) == LOOKUP_OK);
    uint64_t a[] = {5, INT32_MAX - 1}, b[] = {5, 7}, out[4];
    size_t n = 0;
    EXPECT(lookup_merge_two(&l, a, 1, b, 1, out, &n) == LOOKUP_OK && n == 1 && out[1] == INT32_MAX);
    int32_t ngram = 0, pair[] = {5, INT32_MAX}, zero[] = {5, 0}, huge[] = {500, 1};
    uint32_t one = 1, two = 2;
    EXPECT(lookup_expand(&l, &ngram, &one, pair, 1, 1, 3, 1, out) == LOOKUP_OK && out[1] == INT32_MAX);
    EXPECT(lookup_expand(&l, &ngram, &one, pair, 1, 1, 1, INT32_MAX, out) == LOOKUP_OK && out[1] == 1);
    EXPECT(lookup_expand(&l, &ngram, &one, zero, 1, 1, 1, 1, out) == LOOKUP_E_COUNT);
    EXPECT(lookup_expand(&l, &ngram, &one, huge, 1, 1, 1, 1, out) == LOOKUP_E_TOKEN);
    EXPECT(lookup_expand(&l, &ngram, &two, pair, 1, 1, 1, 1, out) == LOOKUP_E_SPAN);
    EXPECT(lookup_expand(&l, &ngram, &one, pair, 1, 1, 0, 1, out) == LOOKUP_E_ARGUMENT);
}

/* Rounded half up, at least 1: counts 1..7 times 1/2 and 1/3. */
static void scaled_counts_round_half_up(void) {
    lookup_layout l;
    REQUIRE(lookup_layout_for(&l, 1, 100, 1) == LOOKUP_OK);
    static const uint64_t HALF[] = {1, 1, 2, 2, 3, 3, 4}, THIRD[] = {1, 1, 1, 1, 2, 2, 2};
    for (int32_t c = 1; c <= 7; ++c) {
        int32_t ngram = 0, pair[] = {5, c};
        uint32_t one = 1;
        uint64_t out[2];
        EXPECT(lookup_expand(&l, &ngram, &one, pair, 1, 1, 1, 2, out) == LOOKUP_OK && out[1] == HALF[c - 1]);
        EXPECT(lookup_expand(&l, &ngram, &one, pair, 1, 1, 1, 3, out) == LOOKUP_OK && out[1] == THIRD[c - 1]);
    }
}

/* Whether follower `i` of a list is among its `k` best: more frequent, or as frequent and lower. */
static bool among_best(const int32_t *pairs, size_t n, size_t i, size_t k) {
    size_t better = 0;
    for (size_t j = 0; j < n; ++j)
        better += pairs[2 * j + 1] > pairs[2 * i + 1] || (pairs[2 * j + 1] == pairs[2 * i + 1] && pairs[2 * j] < pairs[2 * i]);
    return better < k;
}

static void pruned_like_the_dull_way(size_t n, int32_t min_count, int32_t top_k, rng *r) {
    lookup_layout l;
    REQUIRE(lookup_layout_for(&l, 1, 1000, 1) == LOOKUP_OK);
    uint64_t *records = test_memory(16 * n);
    int32_t *wanted = test_memory(8 * n), *pairs = test_memory(8 * n), *entries = test_memory(8 * n), *ngrams = test_memory(4 * n);
    uint32_t *lengths = test_memory(4 * n);
    size_t n_wanted = 0, kept = 0, used = 0, n_ngrams = 0, n_pairs = 0;
    for (size_t i = 0; i < n; ++i) {
        pairs[2 * i] = (int32_t)i;
        pairs[2 * i + 1] = (int32_t)(1 + rng_below(r, 6));
        records[2 * i] = (3ull << l.bits) | i;
        records[2 * i + 1] = (uint64_t)pairs[2 * i + 1];
    }
    for (size_t i = 0; i < n; ++i) {
        if (pairs[2 * i + 1] < min_count) continue;
        memcpy(wanted + 2 * kept++, pairs + 2 * i, 8);
    }
    for (size_t i = 0; i < kept; ++i)
        if (top_k == 0 || among_best(wanted, kept, i, (size_t)top_k)) memcpy(pairs + 2 * n_wanted++, wanted + 2 * i, 8);
    lookup_prune prune = {min_count, top_k};
    REQUIRE(lookup_group(&l, records, n, 1, &prune, ngrams, lengths, entries, &used, &n_ngrams, &n_pairs) == LOOKUP_OK);
    EXPECT(used == n && n_pairs == n_wanted && n_ngrams == (n_wanted > 0));
    EXPECT(n_pairs != n_wanted || memcmp(entries, pairs, 8 * n_pairs) == 0);
    test_free(records);
    test_free(wanted);
    test_free(pairs);
    test_free(entries);
    test_free(ngrams);
    test_free(lengths);
}

static void prune_keeps_the_best(void) {
    rng r = {41};
    for (size_t n = 1; n <= 40; ++n)
        for (int32_t top_k = 0; top_k <= 8; ++top_k)
            for (int32_t min_count = 1; min_count <= 4; ++min_count) pruned_like_the_dull_way(n, min_count, top_k, &r);
}

/* Records handed over in pieces give the same groups as all at once. */
static void groups_do_not_depend_on_pieces(void) {
    lookup_layout l;
    rng r = {51};
    REQUIRE(lookup_layout_for(&l, 2, 7, 0) == LOOKUP_OK);
    size_t n = 2000, used = 0, g_all = 0, p_all = 0, g_sum = 0, p_sum = 0;
    uint64_t *records = random_records(&l, n, ~0ull, &r), *scratch = test_memory(8 * n);
    int32_t *ngrams = test_memory(8 * n), *entries = test_memory(8 * n), *ngrams2 = test_memory(8 * n), *entries2 = test_memory(8 * n);
    uint32_t *lengths = test_memory(4 * n), *lengths2 = test_memory(4 * n);
    lookup_prune all = {1, 0};
    REQUIRE(lookup_sort(&l, records, scratch, n) == LOOKUP_OK);
    REQUIRE(lookup_group(&l, records, n, 1, &all, ngrams, lengths, entries, &used, &g_all, &p_all) == LOOKUP_OK && used == n);
    for (size_t from = 0, to = 0; from < n; from += used) {
        size_t g = 0, p = 0;
        to = to + 150 > n ? n : to + 150;
        REQUIRE(lookup_group(&l, records + from, to - from, to == n, &all, ngrams2 + 2 * g_sum, lengths2 + g_sum, entries2 + 2 * p_sum, &used, &g, &p) == LOOKUP_OK);
        g_sum += g;
        p_sum += p;
    }
    EXPECT(g_sum == g_all && p_sum == p_all);
    EXPECT(memcmp(ngrams, ngrams2, 8 * g_all) == 0 && memcmp(lengths, lengths2, 4 * g_all) == 0 && memcmp(entries, entries2, 8 * p_all) == 0);
    test_free(records);
    test_free(scratch);
    test_free(ngrams);
    test_free(ngrams2);
    test_free(entries);
    test_free(entries2);
    test_free(lengths);
    test_free(lengths2);
}

void suite_count(void) {
    RUN(layouts);
    RUN(sort_every_width_and_size);
    RUN(pack_against_a_dull_model);
    RUN(pack_refuses);
    RUN(pack_group_expand_round_trip);
    RUN(merge_two_runs);
    RUN(counts_saturate);
    RUN(scaled_counts_round_half_up);
    RUN(prune_keeps_the_best);
    RUN(groups_do_not_depend_on_pieces);
}
