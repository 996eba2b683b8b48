/* Text to ids: what is refused, and a vocabulary small enough to follow by hand. */
#include <string.h>

#include "lookup_build.h"
#include "suites.h"
#include "test.h"

#define N (256 + 3)

typedef struct {
    uint8_t text[4 * N];
    uint64_t ends[N];
    lookup_tokens tokens;
} vocabulary;

/* All bytes, then "he", "ll", "hell". */
static void make(vocabulary *v, const char *family, const char *merges, const uint64_t *ends, uint32_t n) {
    uint64_t at = 0;
    for (unsigned b = 0; b < 256; b++) {
        unsigned c = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD) ? b
                     : b < 0x21                                            ? 0x100 + b
                     : b == 0xAD                                           ? 0x143
                                                                           : 0x100 + b - 0x7F + 0x21;
        if (c >= 0x80) v->text[at++] = (uint8_t)(0xC0 | c >> 6);
        v->text[at++] = (uint8_t)(c < 0x80 ? c : 0x80 | (c & 63));
        v->ends[b] = at;
    }
    memcpy(v->text + at, "hellhell", 8);
    v->ends[256] = at + 2;
    v->ends[257] = at + 4;
    v->ends[258] = at + 8;
    v->tokens = (lookup_tokens){v->text, v->ends, NULL, (const uint8_t *)merges, ends, NULL, N, n, lookup_tokenizer_rules(family), 0, 0};
}

static const char MERGES[] = "h el lhe ll";
static const uint64_t MERGE_ENDS[] = {3, 6, 11};

static void a_word_is_merged(void) {
    vocabulary v;
    make(&v, "gpt-2", MERGES, MERGE_ENDS, 3);
    lookup_tokenizer *t = NULL;
    lookup_memo *memo = NULL;
    EXPECT(lookup_tokenizer_new(&v.tokens, &t) == LOOKUP_OK);
    EXPECT(lookup_memo_new(4, &memo) == LOOKUP_OK);
    uint8_t text[12 + 64] = "hello, hello";
    uint64_t ends[2] = {5, 12};
    int32_t ids[12 + 64];
    int64_t counts[2];
    EXPECT(lookup_tokenize(t, NULL, memo, text, ends, 2, ids, 12 + 64, counts) == LOOKUP_OK);
    static const int32_t expected[] = {258, 'o', ',', ' ', 258, 'o'};
    EXPECT(counts[0] == 2);
    EXPECT(counts[1] == 4);
    EXPECT(memcmp(ids, expected, sizeof expected) == 0);
    text[3] = 0xFF; /* no UTF-8 */
    EXPECT(lookup_tokenize(t, NULL, memo, text, ends, 2, ids, 12 + 64, counts) == LOOKUP_E_ARGUMENT);
    text[3] = 'l';
    EXPECT(lookup_tokenize(t, NULL, memo, text, ends, 2, ids, 12, counts) == LOOKUP_E_ARGUMENT);
    lookup_memo_free(memo);
    lookup_tokenizer_free(t);
}

static void what_does_not_fit_is_refused(void) {
    vocabulary v;
    lookup_tokenizer *t = NULL;
    static const uint64_t one[] = {3};
    make(&v, "gpt-2", "x y", one, 1);
    EXPECT(lookup_tokenizer_new(&v.tokens, &t) == LOOKUP_E_NGRAM);
    make(&v, "no such family", MERGES, MERGE_ENDS, 3);
    EXPECT(lookup_tokenizer_new(&v.tokens, &t) == LOOKUP_E_ARGUMENT);
    make(&v, "spm", MERGES, MERGE_ENDS, 3); /* no scores */
    EXPECT(lookup_tokenizer_new(&v.tokens, &t) == LOOKUP_E_ARGUMENT);
    static float scores[N];
    v.tokens.scores = scores; /* no byte tokens */
    EXPECT(lookup_tokenizer_new(&v.tokens, &t) == LOOKUP_E_TOKEN);
    memcpy(v.text + v.ends[256], "he", 2);
    EXPECT(lookup_tokenizer_new(&v.tokens, &t) == LOOKUP_E_DUPLICATE);
    lookup_memo *memo;
    EXPECT(lookup_memo_new(1, &memo) == LOOKUP_E_ARGUMENT);
    lookup_tokenizer_free(NULL);
    lookup_literals_free(NULL);
    lookup_memo_free(NULL);
}

/* "bcd" before "ab", though that begins further left; "z" takes the spaces behind it. */
static void the_longest_literal_comes_first(void) {
    vocabulary v;
    make(&v, "gpt-2", MERGES, MERGE_ENDS, 3);
    lookup_tokenizer *t = NULL;
    lookup_memo *memo = NULL;
    lookup_literals *l = NULL;
    static const uint64_t literal_ends[] = {2, 5, 6};
    static const int32_t literal_ids[] = {1, 2, 3};
    static const uint8_t strip[] = {0, 0, 2};
    REQUIRE(lookup_literals_new((const uint8_t *)"abbcdz", literal_ends, literal_ids, strip, 3, &l) == LOOKUP_OK);
    REQUIRE(lookup_tokenizer_new(&v.tokens, &t) == LOOKUP_OK);
    REQUIRE(lookup_memo_new(4, &memo) == LOOKUP_OK);
    uint8_t text[11 + 64] = "xabcdz  yab";
    uint64_t end = 11;
    int32_t ids[11 + 64];
    int64_t count;
    EXPECT(lookup_tokenize(t, l, memo, text, &end, 1, ids, 11 + 64, &count) == LOOKUP_OK);
    static const int32_t expected[] = {'x', 'a', 2, 3, 'y', 1};
    EXPECT(count == 6 && memcmp(ids, expected, sizeof expected) == 0);
    lookup_literals_free(l);
    lookup_memo_free(memo);
    lookup_tokenizer_free(t);
}

void suite_tokenize(void) {
    RUN(a_word_is_merged);
    RUN(what_does_not_fit_is_refused);
    RUN(the_longest_literal_comes_first);
}
