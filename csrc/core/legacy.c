/* llama.cpp's own cache files: records {4 x i32 tokens, i32 n, n x {i32 token, i32 count}}, no
 * header. Read strictly, written in sorted order. */
#include <stdlib.h>

#include "layout.h"

#define HEAD 20 /* bytes before a record's followers */

static int compare_i32(const void *a, const void *b) {
    int32_t x = load_i32(a), y = load_i32(b);
    return (x > y) - (x < y);
}

static bool followers_ascend(const unsigned char *pairs, size_t n) {
    for (size_t i = 1; i < n; ++i)
        if (load_i32(pairs + 8 * i - 8) >= load_i32(pairs + 8 * i)) return false;
    return true;
}

/* A follower may stand once in a record. */
static lookup_status check_unique(const unsigned char *pairs, size_t n) {
    int32_t *tokens = lookup_alloc(n, sizeof *tokens);
    CHECK(tokens != NULL, LOOKUP_E_MEMORY);
    for (size_t i = 0; i < n; ++i) tokens[i] = load_i32(pairs + 8 * i);
    qsort(tokens, n, sizeof *tokens, compare_i32);
    bool twice = false;
    for (size_t i = 1; i < n; ++i) twice |= tokens[i] == tokens[i - 1];
    lookup_free(tokens);
    return twice ? LOOKUP_E_DUPLICATE : LOOKUP_OK;
}

/* The order of a record's n-gram: its leading tokens; -1 may only trail. 0 if malformed. */
static int order_of(const unsigned char *record) {
    int order = 0;
    while (order < 4 && load_i32(record + 4 * order) >= 0) ++order;
    for (int k = order; k < 4; ++k)
        if (load_i32(record + 4 * k) != -1) return 0;
    return order;
}

/* Whether a record's n-gram sorts behind another one's: by order, then by tokens. */
static bool behind(const unsigned char *record, const unsigned char *other) {
    int order = order_of(record), before = order_of(other);
    if (order != before) return order > before;
    for (int k = 0; k < order; ++k) {
        int32_t a = load_i32(record + 4 * k), b = load_i32(other + 4 * k);
        if (a != b) return a > b;
    }
    return false;
}

static lookup_status scan_record(const unsigned char *p, size_t left, lookup_legacy_info *info) {
    CHECK(left >= HEAD, LOOKUP_E_TRUNCATED);
    int order = order_of(p);
    CHECK(order > 0, LOOKUP_E_NGRAM);
    int32_t n = load_i32(p + 16);
    CHECK(n > 0, LOOKUP_E_COUNT);
    CHECK((left - HEAD) / 8 >= (size_t)n, LOOKUP_E_TRUNCATED);
    int32_t top = info->max_token;
    for (int k = 0; k < order; ++k) top = load_i32(p + 4 * k) > top ? load_i32(p + 4 * k) : top;
    for (size_t i = 0; i < (size_t)n; ++i) {
        int32_t token = load_i32(p + HEAD + 8 * i);
        CHECK(token >= 0, LOOKUP_E_TOKEN);
        CHECK(load_i32(p + HEAD + 8 * i + 4) > 0, LOOKUP_E_COUNT);
        top = token > top ? token : top;
    }
    if (!followers_ascend(p + HEAD, (size_t)n)) {
        TRY(check_unique(p + HEAD, (size_t)n));
        info->ascending = 0;
    }
    info->max_token = top;
    info->n_ngrams[order - 1] += 1;
    info->n_pairs[order - 1] += (uint64_t)n;
    info->bytes += HEAD + 8 * (uint64_t)n;
    return LOOKUP_OK;
}

lookup_status lookup_legacy_scan(const void *data, size_t size, lookup_legacy_info *info) {
    CHECK(info != NULL && (size == 0 || data != NULL), LOOKUP_E_ARGUMENT);
    memset(info, 0, sizeof *info);
    info->max_token = -1;
    info->ascending = 1;
    const unsigned char *p = data, *before = NULL;
    while (info->bytes < size) {
        const unsigned char *record = p + info->bytes;
        TRY(scan_record(record, size - (size_t)info->bytes, info));
        if (before != NULL && info->ascending && !behind(record, before)) info->ascending = 0;
        before = record;
    }
    return LOOKUP_OK;
}

lookup_status lookup_legacy_boundary(const void *data, size_t size, size_t from, size_t at_least, size_t *end) {
    CHECK(data != NULL && end != NULL && from <= size, LOOKUP_E_ARGUMENT);
    const unsigned char *p = data;
    size_t at = from;
    while (at < size && at - from < at_least) {
        CHECK(size - at >= HEAD, LOOKUP_E_TRUNCATED);
        size_t n = load32(p + at + 16);
        CHECK((size - at - HEAD) / 8 >= n, LOOKUP_E_TRUNCATED);
        at += HEAD + 8 * n;
    }
    *end = at;
    return LOOKUP_OK;
}

lookup_status lookup_legacy_records(const void *data, size_t size, const lookup_layout *layout,
                                    int64_t num, int64_t den, uint64_t *records, size_t capacity) {
    CHECK(lookup_layout_valid(layout) && layout->stride == layout->key_words + 1, LOOKUP_E_ARGUMENT);
    CHECK(num > 0 && den > 0 && num <= INT32_MAX && den <= INT32_MAX, LOOKUP_E_ARGUMENT);
    const unsigned char *p = data;
    int words = layout->key_words, bits = layout->bits;
    for (size_t at = 0; at + HEAD <= size;) {
        const unsigned char *pairs = p + at + HEAD;
        size_t n = load32(p + at + 16);
        CHECK((size - at - HEAD) / 8 >= n, LOOKUP_E_TRUNCATED);
        if (order_of(p + at) == layout->order) {
            CHECK(n <= capacity, LOOKUP_E_TRUNCATED);
            capacity -= n;
            uint64_t prefix[MAX_WORDS] = {0};
            for (int k = 0; k < layout->order; ++k) key_push(prefix, words, bits, load32(p + at + 4 * k));
            for (size_t i = 0; i < n; ++i, records += layout->stride) {
                for (int w = 0; w < words; ++w) records[w] = prefix[w];
                key_push(records, words, bits, load32(pairs + 8 * i));
                records[words] = scaled(load_i32(pairs + 8 * i + 4), num, den);
            }
        }
        at += HEAD + 8 * n;
    }
    return LOOKUP_OK;
}

lookup_status lookup_legacy_write(int32_t order, const int32_t *ngrams, const uint32_t *lengths,
                                  const int32_t *entries, size_t n_ngrams, void *out) {
    CHECK(order >= 1 && order <= LOOKUP_MAX_ORDER, LOOKUP_E_ARGUMENT);
    CHECK(n_ngrams == 0 || (ngrams && lengths && entries && out), LOOKUP_E_ARGUMENT);
    unsigned char *p = out;
    for (size_t g = 0; g < n_ngrams; ++g) {
        for (int k = 0; k < 4; ++k) store32(p + 4 * k, k < order ? (uint32_t)ngrams[(size_t)order * g + (size_t)k] : UINT32_MAX);
        store32(p + 16, lengths[g]);
        memcpy(p + HEAD, entries, 8 * (size_t)lengths[g]);
        entries += 2 * (size_t)lengths[g];
        p += HEAD + 8 * (size_t)lengths[g];
    }
    return LOOKUP_OK;
}
