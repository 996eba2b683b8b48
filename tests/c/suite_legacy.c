/* legacy.c, annex.c */
#include <string.h>

#include "suites.h"
#include "support.h"

#define VOCAB 60

static void legacy_round_trip(void) {
    int32_t *text = make_text(300, VOCAB, 4);
    blob file = {NULL, 0};
    lookup_legacy_info info;
    REQUIRE(make_legacy(text, 300, VOCAB, &file) == LOOKUP_OK);
    REQUIRE(lookup_legacy_scan(file.data, file.size, &info) == LOOKUP_OK);
    EXPECT(info.bytes == file.size && info.max_token < VOCAB);
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        grouped g;
        lookup_layout l;
        REQUIRE(make_grouped(text, 300, order, info.max_token, &g) == LOOKUP_OK);
        REQUIRE(lookup_layout_for(&l, order, info.max_token, 1) == LOOKUP_OK);
        EXPECT(info.n_ngrams[order - 1] == g.n_ngrams && info.n_pairs[order - 1] == g.n_pairs);
        size_t bytes = 8 * g.n_pairs * (size_t)l.stride;
        uint64_t *read = test_memory(bytes), *wanted = test_memory(bytes);
        EXPECT(lookup_legacy_records(file.data, file.size, &l, 1, 1, read, g.n_pairs) == LOOKUP_OK);
        EXPECT(lookup_expand(&l, g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs, 1, 1, wanted) == LOOKUP_OK);
        EXPECT(memcmp(read, wanted, bytes) == 0);
        test_free(read);
        test_free(wanted);
        grouped_free(&g);
    }
    blob_free(&file);
    test_free(text);
}

/* Scans exactly `size` bytes and, if they pass, reads every order's records. */
static lookup_status legacy_of(const unsigned char *data, size_t size, lookup_legacy_info *info) {
    unsigned char *exact = test_copy(data, size);
    lookup_status status = lookup_legacy_scan(exact, size, info);
    EXPECT(info->bytes <= size && (status != LOOKUP_OK || info->bytes == size));
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER && status == LOOKUP_OK && info->max_token >= 0; ++order) {
        lookup_layout l;
        EXPECT(lookup_layout_for(&l, order, info->max_token, 1) == LOOKUP_OK);
        uint64_t *records = test_memory(8 * info->n_pairs[order - 1] * (size_t)l.stride);
        size_t room = (size_t)info->n_pairs[order - 1];
        EXPECT(lookup_legacy_records(exact, size, &l, 1, 1, records, room) == LOOKUP_OK);
        if (room > 0) /* a file that has grown since the scan */
            EXPECT(lookup_legacy_records(exact, size, &l, 1, 1, records, room - 1) == LOOKUP_E_TRUNCATED);
        test_free(records);
    }
    test_free(exact);
    return status;
}

/* A prefix is whole only where a record ends (pitfall 8). */
static void legacy_prefixes(void) {
    int32_t *text = make_text(60, 9, 5);
    blob file = {NULL, 0};
    lookup_legacy_info info;
    REQUIRE(make_legacy(text, 60, 9, &file) == LOOKUP_OK);
    size_t next_end = 0;
    for (size_t size = 0; size <= file.size; ++size) {
        lookup_status status = legacy_of(file.data, size, &info);
        EXPECT(status == (size == next_end ? LOOKUP_OK : LOOKUP_E_TRUNCATED));
        if (size == next_end && size < file.size) next_end += 20 + 8 * (size_t)get32(file.data + size + 16);
    }
    blob_free(&file);
    test_free(text);
}

static void legacy_byte_changes(void) {
    int32_t *text = make_text(40, 9, 6);
    blob file = {NULL, 0};
    lookup_legacy_info info;
    REQUIRE(make_legacy(text, 40, 9, &file) == LOOKUP_OK);
    for (size_t at = 0; at < file.size; ++at)
        for (unsigned change = 1; change < 256; change += change < 128 ? change : 127) {
            file.data[at] ^= (unsigned char)change;
            lookup_status status = legacy_of(file.data, file.size, &info);
            EXPECT(status == LOOKUP_OK || status == LOOKUP_E_TRUNCATED || status == LOOKUP_E_NGRAM || status == LOOKUP_E_COUNT ||
                   status == LOOKUP_E_TOKEN || status == LOOKUP_E_DUPLICATE);
            file.data[at] ^= (unsigned char)change;
        }
    blob_free(&file);
    test_free(text);
}

/* Cut anywhere, a file falls into whole records, so that it can be read in pieces. */
static void legacy_boundaries(void) {
    int32_t *text = make_text(60, 9, 5);
    blob file = {NULL, 0};
    lookup_legacy_info whole, info;
    REQUIRE(make_legacy(text, 60, 9, &file) == LOOKUP_OK);
    REQUIRE(lookup_legacy_scan(file.data, file.size, &whole) == LOOKUP_OK);
    for (size_t least = 1; least < 300; least += 7) {
        uint64_t pairs = 0;
        size_t end = 0;
        for (size_t from = 0; from < file.size; from = end) {
            REQUIRE(lookup_legacy_boundary(file.data, file.size, from, least, &end) == LOOKUP_OK);
            REQUIRE(end - from >= least || end == file.size);
            EXPECT(legacy_of(file.data + from, end - from, &info) == LOOKUP_OK);
            for (int k = 0; k < 4; ++k) pairs += info.n_pairs[k];
        }
        EXPECT(pairs == whole.n_pairs[0] + whole.n_pairs[1] + whole.n_pairs[2] + whole.n_pairs[3]);
    }
    size_t end = 5;
    EXPECT(lookup_legacy_boundary(file.data, file.size, file.size, 9, &end) == LOOKUP_OK && end == file.size);
    EXPECT(lookup_legacy_boundary(file.data, file.size, file.size + 1, 9, &end) == LOOKUP_E_ARGUMENT);
    unsigned char *cut = test_copy(file.data, 27);
    EXPECT(lookup_legacy_boundary(cut, 27, 0, 1, &end) == LOOKUP_E_TRUNCATED);
    EXPECT(lookup_legacy_boundary(cut, 19, 0, 1, &end) == LOOKUP_E_TRUNCATED);
    put32(cut + 16, UINT32_MAX);
    EXPECT(lookup_legacy_boundary(cut, 27, 0, 1, &end) == LOOKUP_E_TRUNCATED);
    test_free(cut);
    blob_free(&file);
    test_free(text);
}

static lookup_status legacy_record(const int32_t *words, size_t n) {
    lookup_legacy_info info;
    return legacy_of((const unsigned char *)words, 4 * n, &info);
}
#define LEGACY(...) legacy_record((const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

static void legacy_rules(void) {
    EXPECT(LEGACY(1, 2, -1, -1, 1, 5, 1) == LOOKUP_OK);
    EXPECT(LEGACY(1, 2, -1, -1, 2, 9, 1, 5, 1) == LOOKUP_OK); /* any order */
    EXPECT(LEGACY(-1, -1, -1, -1, 1, 5, 1) == LOOKUP_E_NGRAM);
    EXPECT(LEGACY(1, -1, 2, -1, 1, 5, 1) == LOOKUP_E_NGRAM);
    EXPECT(LEGACY(1, -2, -1, -1, 1, 5, 1) == LOOKUP_E_NGRAM);
    EXPECT(LEGACY(1, 2, -1, -1, 0) == LOOKUP_E_COUNT);
    EXPECT(LEGACY(1, 2, -1, -1, -1, 5, 1) == LOOKUP_E_COUNT);
    EXPECT(LEGACY(1, 2, -1, -1, INT32_MAX, 5, 1) == LOOKUP_E_TRUNCATED);
    EXPECT(LEGACY(1, 2, -1, -1, 1, 5, 0) == LOOKUP_E_COUNT);
    EXPECT(LEGACY(1, 2, -1, -1, 1, -5, 1) == LOOKUP_E_TOKEN);
    EXPECT(LEGACY(1, 2, -1, -1, 3, 9, 1, 5, 1, 9, 1) == LOOKUP_E_DUPLICATE);
    EXPECT(LEGACY(1, 2, -1, -1, 2, 9, 1, 9, 1) == LOOKUP_E_DUPLICATE);
}

/* Decoded into arrays of exactly `n`; what decodes must be ascending 2-grams that encode again. */
static lookup_status decode_exactly(const unsigned char *data, size_t size, size_t n) {
    unsigned char *exact = test_copy(data, size);
    int32_t *ngrams = test_memory(8 * n);
    uint32_t *lengths = test_memory(4 * n);
    lookup_status status = lookup_keys_decode(exact, size, n, ngrams, lengths);
    if (status == LOOKUP_OK) {
        size_t used = 0;
        unsigned char *again = test_memory(25 * n);
        EXPECT(lookup_keys_encode(ngrams, lengths, n, again, 25 * n, &used) == LOOKUP_OK && used <= size);
        test_free(again);
    }
    test_free(exact);
    test_free(ngrams);
    test_free(lengths);
    return status;
}

static void annex_round_trip_and_damage(void) {
    int32_t *text = make_text(400, INT32_MAX, 7);
    grouped g;
    REQUIRE(make_grouped(text, 400, 2, INT32_MAX, &g) == LOOKUP_OK);
    size_t n = g.n_ngrams, room = 25 * n, used = 0;
    unsigned char *data = test_memory(room);
    REQUIRE(lookup_keys_encode(g.ngrams, g.lengths, n, data, room, &used) == LOOKUP_OK);
    int32_t *ngrams = test_memory(8 * n);
    uint32_t *lengths = test_memory(4 * n);
    EXPECT(lookup_keys_decode(data, used, n, ngrams, lengths) == LOOKUP_OK);
    EXPECT(memcmp(ngrams, g.ngrams, 8 * n) == 0 && memcmp(lengths, g.lengths, 4 * n) == 0);
    for (size_t size = 0; size < used; ++size) EXPECT(decode_exactly(data, size, n) == LOOKUP_E_KEYS);
    EXPECT(decode_exactly(data, used, n - 1) == LOOKUP_E_KEYS);
    EXPECT(decode_exactly(data, used, n + 1) == LOOKUP_E_KEYS);
    EXPECT(decode_exactly(data, used, 0) == LOOKUP_E_KEYS);
    for (size_t at = 0; at < used; ++at)
        for (unsigned change = 1; change < 256; change *= 2) {
            data[at] ^= (unsigned char)change;
            lookup_status status = decode_exactly(data, used, n);
            EXPECT(status == LOOKUP_OK || status == LOOKUP_E_KEYS);
            data[at] ^= (unsigned char)change;
        }
    for (size_t less = 1; less < used; less += 97) { /* too little room is said, not written past */
        unsigned char *small = test_memory(less);
        EXPECT(lookup_keys_encode(g.ngrams, g.lengths, n, small, less, &n) == LOOKUP_E_LIMIT);
        test_free(small);
    }
    test_free(data);
    test_free(ngrams);
    test_free(lengths);
    grouped_free(&g);
    test_free(text);
}

static void annex_edges(void) {
    unsigned char out[64];
    uint32_t lengths[] = {1, UINT32_MAX};
    size_t used = 9;
    const int32_t top[] = {0, INT32_MAX, INT32_MAX, INT32_MAX}, twice[] = {1, 5, 1, 5}, falling[] = {2, 1, 1, 1};
    const int32_t negative[] = {-1, 1}, after_top[] = {INT32_MAX, 1, 3, 1}, after_top1[] = {3, INT32_MAX, 3, 1};
    EXPECT(lookup_keys_encode(NULL, NULL, 0, NULL, 0, &used) == LOOKUP_OK && used == 0);
    EXPECT(lookup_keys_decode(NULL, 0, 0, NULL, NULL) == LOOKUP_OK);
    EXPECT(lookup_keys_encode(top, lengths, 2, out, sizeof out, &used) == LOOKUP_OK);
    EXPECT(decode_exactly(out, used, 2) == LOOKUP_OK);
    EXPECT(lookup_keys_encode(twice, lengths, 2, out, sizeof out, &used) == LOOKUP_E_ORDER);
    EXPECT(lookup_keys_encode(falling, lengths, 2, out, sizeof out, &used) == LOOKUP_E_ORDER);
    EXPECT(lookup_keys_encode(negative, lengths, 1, out, sizeof out, &used) == LOOKUP_E_ORDER);
    EXPECT(lookup_keys_encode(after_top, lengths, 2, out, sizeof out, &used) == LOOKUP_E_ORDER);
    EXPECT(lookup_keys_encode(after_top1, lengths, 2, out, sizeof out, &used) == LOOKUP_E_ORDER);
}

void suite_legacy(void) {
    RUN(legacy_round_trip);
    RUN(legacy_prefixes);
    RUN(legacy_byte_changes);
    RUN(legacy_rules);
    RUN(legacy_boundaries);
    RUN(annex_round_trip_and_damage);
    RUN(annex_edges);
}
