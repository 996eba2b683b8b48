/* table.c, index.c against a model that rescans the text */
#include <string.h>

#include "suites.h"
#include "support.h"

#define VOCAB 12
#define ROOM 64

/* Counts of followers of the `order` tokens at `ngram` in the streams of `text`; `ends` cut it. */
typedef struct {
    const int32_t *text;
    size_t n, cut; /* the stream breaks before `cut` */
} model;

static void model_followers(const model *m, const int32_t *ngram, int32_t order, uint32_t *counts) {
    memset(counts, 0, VOCAB * sizeof *counts);
    for (size_t i = (size_t)order; i < m->n; ++i) {
        size_t start = i - (size_t)order;
        if (start < m->cut && i >= m->cut) continue;
        if (memcmp(m->text + start, ngram, 4 * (size_t)order) == 0) counts[m->text[i]]++;
    }
}

static void same_followers(const lookup_table *t, const model *m, const int32_t *ngram, int32_t order) {
    uint32_t counts[VOCAB], total = 0, max = 0, sum = 0, top = 0;
    int32_t entries[2 * ROOM];
    size_t n = 0, wanted = 0;
    model_followers(m, ngram, order, counts);
    for (int k = 0; k < VOCAB; ++k) {
        sum += counts[k];
        wanted += counts[k] > 0;
        top = counts[k] > top ? counts[k] : top;
    }
    REQUIRE(lookup_table_followers(t, ngram, order, entries, ROOM, &n, &total, &max) == LOOKUP_OK);
    EXPECT(n == wanted && total == sum && max == top);
    for (size_t i = 0; i < n && i < ROOM; ++i)
        EXPECT(entries[2 * i] >= 0 && entries[2 * i] < VOCAB && counts[entries[2 * i]] == (uint32_t)entries[2 * i + 1]);
}

static void same_as_model(const lookup_table *t, const model *m) {
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order)
        for (size_t i = 0; i + (size_t)order <= m->n; i += 3) same_followers(t, m, m->text + i, order);
    const int32_t absent[] = {VOCAB - 1, 0, VOCAB - 1, VOCAB};
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) same_followers(t, m, absent, order);
}

static void update_in_pieces(lookup_table *t, const int32_t *text, size_t n, rng *r) {
    for (size_t at = 0, step; at < n; at += step) {
        step = 1 + rng_below(r, 60);
        if (step > n - at) step = n - at;
        EXPECT(lookup_table_update(t, text + at, step) == LOOKUP_OK);
    }
}

static void table_against_a_dull_model(void) {
    rng r = {61};
    lookup_table *t = NULL;
    REQUIRE(lookup_table_new(&t) == LOOKUP_OK);
    for (uint64_t round = 0; round < 8; ++round) { /* reset is part of what is tested */
        size_t n = round % 2 ? 40 : 1500;
        int32_t *text = make_text(n, VOCAB, 70 + round);
        model m = {text, n, n / 3};
        update_in_pieces(t, text, m.cut, &r);
        lookup_table_end_stream(t);
        update_in_pieces(t, text + m.cut, n - m.cut, &r);
        same_as_model(t, &m);
        lookup_table_reset(t);
        model none = {text, 0, 0};
        same_followers(t, &none, text, 1);
        test_free(text);
    }
    lookup_table_free(t);
    lookup_table_free(NULL);
}

static uint64_t *sorted_records(const lookup_table *t, const lookup_layout *l, size_t *n) {
    lookup_table_info info;
    EXPECT(lookup_table_get_info(t, &info) == LOOKUP_OK);
    *n = (size_t)info.n_pairs[l->order - 1];
    uint64_t *records = test_memory(8 * *n * (size_t)l->stride), *scratch = test_memory(8 * *n * (size_t)l->stride);
    EXPECT(lookup_table_records(t, l, records) == LOOKUP_OK);
    EXPECT(lookup_sort(l, records, scratch, *n) == LOOKUP_OK);
    test_free(scratch);
    return records;
}

/* A table of a text, its records, and a table made of the grouped text hold the same. */
static void records_and_added_groups(void) {
    int32_t *text = make_text(2000, VOCAB, 80);
    lookup_table *t = NULL, *added = NULL;
    REQUIRE(lookup_table_new(&t) == LOOKUP_OK && lookup_table_new(&added) == LOOKUP_OK);
    EXPECT(lookup_table_update(t, text, 2000) == LOOKUP_OK);
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        grouped g;
        lookup_layout l;
        size_t n = 0, n_added = 0;
        REQUIRE(make_grouped(text, 2000, order, VOCAB - 1, &g) == LOOKUP_OK);
        REQUIRE(lookup_layout_for(&l, order, VOCAB - 1, 1) == LOOKUP_OK);
        EXPECT(lookup_table_add(added, order, g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs) == LOOKUP_OK);
        uint64_t *a = sorted_records(t, &l, &n), *b = sorted_records(added, &l, &n_added);
        uint64_t *wanted = test_memory(8 * g.n_pairs * (size_t)l.stride);
        EXPECT(lookup_expand(&l, g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs, 1, 1, wanted) == LOOKUP_OK);
        EXPECT(n == g.n_pairs && memcmp(a, wanted, 8 * n * (size_t)l.stride) == 0);
        EXPECT(n_added == n && memcmp(b, wanted, 8 * n * (size_t)l.stride) == 0);
        test_free(a);
        test_free(b);
        test_free(wanted);
        grouped_free(&g);
    }
    lookup_layout narrow;
    uint64_t *room = test_memory(8 * 4000);
    REQUIRE(lookup_layout_for(&narrow, 1, 1, 1) == LOOKUP_OK);
    EXPECT(lookup_table_records(t, &narrow, room) == LOOKUP_E_TOKEN);
    test_free(room);
    lookup_table_free(t);
    lookup_table_free(added);
    test_free(text);
}

static void table_refuses(void) {
    lookup_table *t = NULL;
    REQUIRE(lookup_table_new(&t) == LOOKUP_OK);
    int32_t bad[] = {1, -1}, ngram[] = {1, 2}, negative[] = {1, -2}, pairs[] = {5, 1}, zero[] = {5, 0}, below[] = {-5, 1};
    uint32_t one = 1, two = 2;
    EXPECT(lookup_table_update(t, bad, 2) == LOOKUP_E_TOKEN);
    EXPECT(lookup_table_update(t, NULL, 1) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_table_update(t, NULL, 0) == LOOKUP_OK);
    EXPECT(lookup_table_add(t, 2, ngram, &one, zero, 1, 1) == LOOKUP_E_COUNT);
    EXPECT(lookup_table_add(t, 2, ngram, &one, below, 1, 1) == LOOKUP_E_TOKEN);
    EXPECT(lookup_table_add(t, 2, negative, &one, pairs, 1, 1) == LOOKUP_E_TOKEN);
    EXPECT(lookup_table_add(t, 2, ngram, &two, pairs, 1, 1) == LOOKUP_E_SPAN);
    EXPECT(lookup_table_add(t, 2, ngram, &one, pairs, 1, 2) == LOOKUP_E_SPAN);
    EXPECT(lookup_table_add(t, 5, ngram, &one, pairs, 1, 1) == LOOKUP_E_ARGUMENT);
    lookup_thresholds wrong = {{1, 1, 1, 0}, {0, 0, 0, 0}}, above = {{1, 1, 1, 1}, {0, 0, 0, 101}};
    EXPECT(lookup_table_index(t, &wrong) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_table_index(t, &above) == LOOKUP_E_ARGUMENT);
    lookup_table_free(t);
}

static void counts_in_a_table_saturate(void) {
    lookup_table *t = NULL;
    REQUIRE(lookup_table_new(&t) == LOOKUP_OK);
    int32_t ngram[] = {1}, pairs[] = {5, INT32_MAX, 6, 3}, entries[4];
    uint32_t lengths[] = {2}, total = 0, max = 0;
    size_t n = 0;
    for (int i = 0; i < 3; ++i) EXPECT(lookup_table_add(t, 1, ngram, lengths, pairs, 1, 2) == LOOKUP_OK);
    EXPECT(lookup_table_followers(t, ngram, 1, entries, 2, &n, &total, &max) == LOOKUP_OK);
    EXPECT(n == 2 && total == UINT32_MAX && max == INT32_MAX);
    for (int i = 0; i < 2; ++i) EXPECT(entries[2 * i + 1] == (entries[2 * i] == 5 ? INT32_MAX : 9));
    lookup_table_free(t);
}

void suite_table(void) {
    RUN(table_against_a_dull_model);
    RUN(records_and_added_groups);
    RUN(table_refuses);
    RUN(counts_in_a_table_saturate);
}
