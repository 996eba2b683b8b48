/* drafter.c and what is beneath it, cost_meter.c, vocabulary.c */
#include <string.h>

#include "suites.h"
#include "support.h"

#define VOCAB 300
#define MOST 16

/* ---- what batches cost */

static void observe(lookup_cost_meter *m, int32_t width, double seconds) {
    for (int i = 0; i < 3; ++i) EXPECT(lookup_cost_meter_observe(m, width, seconds) == LOOKUP_OK);
}

static bool near(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }

static void a_curve_is_medians_that_never_fall(void) {
    lookup_cost_meter *m = NULL;
    int32_t widths[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    double costs[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    size_t n = 9;
    REQUIRE(lookup_cost_meter_new(&m) == LOOKUP_OK);
    EXPECT(lookup_cost_meter_curve(m, LOOKUP_COST_MEASURED, widths, costs, &n) == LOOKUP_OK && n == 0);
    EXPECT(lookup_cost_meter_curve(m, LOOKUP_COST_BOUND, widths, costs, &n) == LOOKUP_OK && n == 2);
    EXPECT(widths[1] == 65 && near(costs[1], 65));
    EXPECT(lookup_cost_meter_curve(m, LOOKUP_COST_HOPED, widths, costs, &n) == LOOKUP_OK && near(costs[1], 1 + 64 * 0.25));
    observe(m, 4, 0.02);
    observe(m, 1, 0.01);
    EXPECT(lookup_cost_meter_observe(m, 1, 5.0) == LOOKUP_OK); /* a pause */
    observe(m, 8, 0.015);                                      /* cheaper than 4: noise */
    EXPECT(lookup_cost_meter_observe(m, 9, 0.5) == LOOKUP_OK); /* once is not enough */
    EXPECT(lookup_cost_meter_observe(m, 0, 1) == LOOKUP_OK && lookup_cost_meter_observe(m, 2, -1) == LOOKUP_OK);
    EXPECT(lookup_cost_meter_curve(m, LOOKUP_COST_MEASURED, widths, costs, &n) == LOOKUP_OK && n == 3);
    EXPECT(widths[0] == 1 && widths[1] == 4 && widths[2] == 8);
    EXPECT(near(costs[0], 1) && near(costs[1], 2) && near(costs[2], 2));
    EXPECT(near(lookup_cost_meter_single(m), 0.01));
    lookup_cost_meter_free(m);
}

static void a_meter_does_without_the_width_that_never_comes(void) {
    lookup_cost_meter *m = NULL;
    REQUIRE(lookup_cost_meter_new(&m) == LOOKUP_OK);
    observe(m, 4, 0.014);
    EXPECT(near(lookup_cost_meter_single(m), 0));
    observe(m, 6, 0.016); /* 0.001 a token: 0.011 at width 1 */
    EXPECT(near(lookup_cost_meter_single(m), 0.011));
    lookup_cost_meter_free(m);
}

static void a_meter_holds_what_a_curve_may(void) {
    lookup_cost_meter *m = NULL;
    int32_t widths[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    double costs[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    size_t n = 0;
    REQUIRE(lookup_cost_meter_new(&m) == LOOKUP_OK);
    for (int32_t width = 2; width < 600; ++width) observe(m, width, 0.01 * width);
    EXPECT(lookup_cost_meter_curve(m, LOOKUP_COST_BOUND, widths, costs, &n) == LOOKUP_OK);
    EXPECT(n == LOOKUP_ADAPTIVE_MAX_WIDTHS && widths[0] == 1);
    lookup_cost_meter_free(m);
}

/* ---- vocabularies */

static void texts_are_hashed_with_their_lengths(void) {
    const char texts[] = "abc";
    const uint64_t ab_c[] = {2, 3}, a_bc[] = {1, 3}, back[] = {3, 1};
    const uint8_t kinds[] = {LOOKUP_TOKEN_TEXT, LOOKUP_TOKEN_BYTE}, unused[] = {LOOKUP_TOKEN_TEXT, LOOKUP_TOKEN_UNUSED};
    lookup_vocabulary one = {0}, same = {0}, other = {0}, third = {0};
    EXPECT(lookup_vocabulary_add_many(&one, texts, ab_c, kinds, 2) == LOOKUP_OK);
    EXPECT(lookup_vocabulary_add(&same, "ab", 2, LOOKUP_TOKEN_TEXT) == LOOKUP_OK);
    EXPECT(lookup_vocabulary_add(&same, "c", 1, LOOKUP_TOKEN_TEXT) == LOOKUP_OK); /* byte or text is not told apart */
    EXPECT(lookup_vocabulary_add_many(&other, texts, a_bc, kinds, 2) == LOOKUP_OK);
    EXPECT(lookup_vocabulary_add_many(&third, texts, ab_c, unused, 2) == LOOKUP_OK);
    EXPECT(lookup_vocabulary_fingerprint(&one) == lookup_vocabulary_fingerprint(&same));
    EXPECT(lookup_vocabulary_fingerprint(&one) != lookup_vocabulary_fingerprint(&other));
    EXPECT(lookup_vocabulary_fingerprint(&one) != lookup_vocabulary_fingerprint(&third));
    EXPECT(lookup_vocabulary_add_many(&other, texts, back, kinds, 2) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_vocabulary_add(&other, "x", 1, 3) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_vocabulary_fingerprint(NULL) != 0);
}

/* ---- drafters */

static lookup_drafter *make(const char *sources, int32_t n_sequences, int32_t learn, lookup_table *table) {
    lookup_drafter_params p;
    lookup_drafter *d = NULL;
    lookup_drafter_defaults(&p);
    p.sources = sources;
    p.n_sequences = n_sequences;
    p.learn = learn;
    p.measure = 0;
    p.dynamic_bytes = 1 << 20;
    EXPECT(lookup_drafter_new(&p, NULL, table, &d, NULL) == LOOKUP_OK);
    return d;
}

/* Has a sequence say text[from..n), with drafts; returns how many tokens were accepted. */
static size_t say(lookup_drafter *d, int32_t id, const int32_t *text, size_t from, size_t n) {
    size_t accepted = 0;
    for (size_t at = from; at < n;) {
        int32_t draft[MOST];
        size_t capacity = MOST, n_draft = 0, right = 0;
        EXPECT(lookup_drafter_follow(d, id, text, at - 1, text[at - 1]) == LOOKUP_OK);
        EXPECT(lookup_drafter_draft(d, &id, &capacity, 1, 0, draft, MOST, &n_draft) == LOOKUP_OK);
        while (right < n_draft && at + right < n && draft[right] == text[at + right]) ++right;
        EXPECT(lookup_drafter_accept(d, id, right) == LOOKUP_OK);
        accepted += right;
        at += right + 1;
    }
    EXPECT(lookup_drafter_follow(d, id, text, n, LOOKUP_NO_TOKEN) == LOOKUP_OK);
    return accepted;
}

/* A drafter of one sequence drafts what its source drafts. */
static void it_drafts_what_the_source_drafts(void) {
    int32_t *text = make_text(1500, VOCAB, 5);
    lookup_ngram_suffix_params params;
    lookup_source *source = NULL;
    lookup_drafter *d = make("ngram-suffix", 1, 0, NULL);
    lookup_ngram_suffix_defaults(&params);
    params.draft = 16;
    REQUIRE(d != NULL && lookup_source_ngram_suffix(&params, &source) == LOOKUP_OK);
    EXPECT(lookup_source_begin(source, text, 1) == LOOKUP_OK);
    for (size_t n = 1; n < 1500; n += 1 + n % 3) {
        int32_t id = 0, got[MOST], wanted[MOST];
        size_t capacity = n % 5 == 0 ? 3 : MOST, n_got = 0, n_wanted = 0;
        EXPECT(lookup_drafter_follow(d, 0, text, n, LOOKUP_NO_TOKEN) == LOOKUP_OK);
        EXPECT(lookup_drafter_draft(d, &id, &capacity, 1, 0, got, MOST, &n_got) == LOOKUP_OK);
        EXPECT(lookup_source_draft(source, text, n, wanted, NULL, capacity, &n_wanted) == LOOKUP_OK);
        EXPECT(n_got == n_wanted && memcmp(got, wanted, n_got * sizeof *got) == 0);
    }
    lookup_source_free(source);
    lookup_drafter_free(d);
    test_free(text);
}

static void a_second_conversation_profits_from_the_first(void) {
    int32_t *text = make_text(1200, VOCAB, 7);
    lookup_table *table = NULL;
    lookup_drafter_counts c;
    size_t first, second, third;
    REQUIRE(lookup_table_new(&table) == LOOKUP_OK);
    lookup_drafter *d = make("ngram-adaptive", 2, 1, table);
    REQUIRE(d != NULL);
    first = say(d, 0, text, 1, 1200);
    second = say(d, 1, text, 1, 1200); /* another sequence, before the first one's has ended */
    EXPECT(lookup_drafter_learn(d) == LOOKUP_OK && lookup_drafter_learn(d) == LOOKUP_OK);
    EXPECT(lookup_drafter_counters(d, -1, &c) == LOOKUP_OK && c.n_learned == 2400);
    EXPECT(lookup_drafter_forget(d, 1) == LOOKUP_OK);
    third = say(d, 1, text, 1, 1200);
    EXPECT(third > first && third > second);
    lookup_drafter_free(d);
    d = make("ngram-adaptive", 1, 0, table); /* after a restart */
    REQUIRE(d != NULL);
    EXPECT(say(d, 0, text, 1, 1200) > first);
    lookup_drafter_free(d);
    lookup_table_free(table);
    test_free(text);
}

/* What is left of a text after a shift is known, and not learned twice. */
static void a_shifted_text_is_followed(void) {
    int32_t *text = make_text(1200, VOCAB, 9), shifted[800];
    lookup_drafter_counts c;
    lookup_drafter *d = make("ngram-adaptive,ngram-simple", 1, 1, NULL);
    REQUIRE(d != NULL);
    (void)say(d, 0, text, 1, 1000);
    memcpy(shifted, text, 10 * sizeof *text); /* ten are kept, then 500 are gone */
    memcpy(shifted + 10, text + 510, 690 * sizeof *text);
    (void)say(d, 0, shifted, 501, 700);
    EXPECT(lookup_drafter_learn(d) == LOOKUP_OK);
    EXPECT(lookup_drafter_counters(d, 0, &c) == LOOKUP_OK);
    EXPECT(c.n_cut == 1 && c.n_learned == 1200);
    lookup_drafter_free(d);
    test_free(text);
}

static void after_any_history_it_drafts_like_new(void) {
    int32_t *text = make_text(900, VOCAB, 11), *other = make_text(900, VOCAB, 12), draft[2][MOST];
    lookup_drafter *d = make("ngram-cache", 1, 0, NULL), *fresh = make("ngram-cache", 1, 0, NULL);
    size_t capacity = MOST, n[2] = {0, 0};
    int32_t id = 0;
    REQUIRE(d != NULL && fresh != NULL);
    (void)say(d, 0, text, 1, 800);
    (void)say(d, 0, other, 300, 500);  /* another text */
    (void)say(d, 0, other, 200, 400);  /* an answer tried again */
    EXPECT(lookup_drafter_follow(d, 0, text, 0, LOOKUP_NO_TOKEN) == LOOKUP_OK);
    EXPECT(lookup_drafter_follow(d, 0, text, 700, LOOKUP_NO_TOKEN) == LOOKUP_OK);
    EXPECT(lookup_drafter_follow(fresh, 0, text, 700, LOOKUP_NO_TOKEN) == LOOKUP_OK);
    EXPECT(lookup_drafter_draft(d, &id, &capacity, 1, 0, draft[0], MOST, &n[0]) == LOOKUP_OK);
    EXPECT(lookup_drafter_draft(fresh, &id, &capacity, 1, 0, draft[1], MOST, &n[1]) == LOOKUP_OK);
    EXPECT(n[0] == n[1] && memcmp(draft[0], draft[1], n[0] * sizeof(int32_t)) == 0);
    lookup_drafter_free(d);
    lookup_drafter_free(fresh);
    test_free(text);
    test_free(other);
}

static void room_ids_and_misuse_are_respected(void) {
    int32_t text[64], draft[2 * MOST], bad[] = {3, -7};
    const int32_t ids[] = {0, 1}, twice[] = {1, 1}, beyond[] = {2};
    size_t capacity[] = {0, 2}, n_drafts[] = {9, 9};
    lookup_drafter *d = make("ngram-simple,ngram-suffix", 2, 0, NULL);
    lookup_error error;
    lookup_drafter_params p;
    REQUIRE(d != NULL);
    for (int32_t i = 0; i < 64; ++i) text[i] = i % 16;
    for (int32_t id = 0; id < 2; ++id) EXPECT(lookup_drafter_follow(d, id, text, 64, LOOKUP_NO_TOKEN) == LOOKUP_OK);
    EXPECT(lookup_drafter_draft(d, ids, capacity, 2, 0, draft, MOST, n_drafts) == LOOKUP_OK);
    EXPECT(n_drafts[0] == 0 && n_drafts[1] == 2 && draft[MOST] == 0 && draft[MOST + 1] == 1);
    EXPECT(lookup_drafter_accept(d, 1, 3) == LOOKUP_OK); /* one more than was drafted: two */
    EXPECT(lookup_drafter_accept(d, 0, 1) == LOOKUP_OK); /* nothing was */
    lookup_drafter_counts c;
    EXPECT(lookup_drafter_counters(d, -1, &c) == LOOKUP_OK && c.n_accepted == 2 && c.n_drafted == 2);
    EXPECT(lookup_drafter_draft(d, twice, capacity, 2, 0, draft, MOST, n_drafts) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_drafter_draft(d, beyond, capacity, 1, 0, draft, MOST, n_drafts) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_drafter_follow(d, 0, bad, 2, LOOKUP_NO_TOKEN) == LOOKUP_E_TOKEN);
    EXPECT(lookup_drafter_draft(d, NULL, NULL, 0, 3, NULL, 0, NULL) == LOOKUP_OK);
    lookup_drafter_free(d);
    lookup_drafter_defaults(&p);
    p.sources = "ngram-cache,ngram-magic";
    d = NULL;
    EXPECT(lookup_drafter_new(&p, NULL, NULL, &d, &error) == LOOKUP_E_ARGUMENT && d == NULL);
    EXPECT(strstr(error.text, "'ngram-magic', expected ngram-adaptive") != NULL);
    p.sources = "ngram-cache,ngram-cache";
    EXPECT(lookup_drafter_new(&p, NULL, NULL, &d, &error) == LOOKUP_E_ARGUMENT && strstr(error.text, " twice") != NULL);
    p.sources = "ngram-suffix";
    p.n_vocab = 1; /* every id but 0 is foreign */
    p.measure = 0;
    REQUIRE(lookup_drafter_new(&p, NULL, NULL, &d, &error) == LOOKUP_OK);
    EXPECT(lookup_drafter_follow(d, 0, text, 64, LOOKUP_NO_TOKEN) == LOOKUP_OK);
    EXPECT(lookup_drafter_draft(d, ids, capacity + 1, 1, 0, draft, MOST, n_drafts) == LOOKUP_OK && n_drafts[0] == 1);
    lookup_drafter_free(d);
}

/* Where each token costs as much as the first, and the measured curve says so, next to nothing is drafted
 * for a text that does not repeat itself. */
static void drafts_that_do_not_pay_are_held_back(void) {
    rng r = {77};
    lookup_drafter_params p;
    lookup_drafter *d = NULL;
    int32_t text[3000];
    double plain = 0, taken = 0;
    for (size_t i = 0; i < 3000; ++i) text[i] = (int32_t)rng_below(&r, 20);
    lookup_drafter_defaults(&p);
    p.sources = "ngram-suffix"; /* drafts eight or more tokens whenever a token came before */
    REQUIRE(lookup_drafter_new(&p, NULL, NULL, &d, NULL) == LOOKUP_OK);
    for (size_t at = 1; at < 3000;) {
        int32_t id = 0, draft[MOST];
        size_t capacity = MOST, n = 0, right = 0;
        EXPECT(lookup_drafter_follow(d, 0, text, at, LOOKUP_NO_TOKEN) == LOOKUP_OK);
        EXPECT(lookup_drafter_draft(d, &id, &capacity, 1, 0, draft, MOST, &n) == LOOKUP_OK);
        EXPECT(lookup_drafter_decoded(d, 1 + n, 0.01 * (double)(1 + n)) == LOOKUP_OK);
        while (right < n && at + right < 3000 && draft[right] == text[at + right]) ++right;
        EXPECT(lookup_drafter_accept(d, 0, right) == LOOKUP_OK);
        taken += 0.01 * (double)(1 + n);
        plain += 0.01 * (double)(1 + right);
        at += 1 + right;
    }
    EXPECT(plain / taken > 0.98);
    lookup_drafter_counts c;
    EXPECT(lookup_drafter_counters(d, -1, &c) == LOOKUP_OK && c.held_back > 0);
    lookup_drafter_free(d);
}

void suite_drafter(void) {
    RUN(a_curve_is_medians_that_never_fall);
    RUN(a_meter_does_without_the_width_that_never_comes);
    RUN(a_meter_holds_what_a_curve_may);
    RUN(texts_are_hashed_with_their_lengths);
    RUN(it_drafts_what_the_source_drafts);
    RUN(a_second_conversation_profits_from_the_first);
    RUN(a_shifted_text_is_followed);
    RUN(after_any_history_it_drafts_like_new);
    RUN(room_ids_and_misuse_are_respected);
    RUN(drafts_that_do_not_pay_are_held_back);
}
