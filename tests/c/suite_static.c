/* static.c, recover.c */
#include <string.h>

#include "suites.h"
#include "support.h"

#define TEXT 4000
#define VOCAB 60

static void static_cache_answers(void) {
    int32_t *text = make_text(TEXT, VOCAB, 1);
    grouped g;
    blob file = {NULL, 0};
    lookup_static cache;
    REQUIRE(make_grouped(text, TEXT, 2, VOCAB - 1, &g) == LOOKUP_OK);
    REQUIRE(make_static(g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs, &file) == LOOKUP_OK);
    REQUIRE(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    EXPECT(cache.n_entries == g.n_pairs);
    uint64_t *keys = test_memory(8 * g.n_ngrams), *offsets = test_memory(8 * g.n_ngrams), at = 0, n = 0, offset = 0;
    uint32_t *lengths = test_memory(4 * g.n_ngrams);
    for (size_t i = 0; i < g.n_ngrams; ++i) {
        keys[i] = (uint32_t)g.ngrams[2 * i] | (uint64_t)(uint32_t)g.ngrams[2 * i + 1] << 32;
        EXPECT(lookup_static_followers(&cache, g.ngrams[2 * i], g.ngrams[2 * i + 1], &offset, &n) == LOOKUP_OK);
        EXPECT(offset == at && n == g.lengths[i]);
        at += n;
    }
    EXPECT(lookup_static_followers(&cache, VOCAB, 1, &offset, &n) == LOOKUP_OK && n == 0);
    EXPECT(lookup_static_followers(&cache, -1, -1, &offset, &n) == LOOKUP_OK && n == 0);
    EXPECT(lookup_static_spans(&cache, keys, g.n_ngrams, offsets, lengths) == LOOKUP_OK);
    EXPECT(memcmp(lengths, g.lengths, 4 * g.n_ngrams) == 0);
    uint64_t bad = 0, covered = 0, *marks = test_memory(8 * (g.n_pairs / 64 + 1));
    memset(marks, 0, 8 * (g.n_pairs / 64 + 1));
    EXPECT(lookup_static_check_entries(&cache, offsets, lengths, g.n_ngrams, VOCAB - 1, &bad) == LOOKUP_OK);
    EXPECT(lookup_static_check_entries(&cache, offsets, lengths, g.n_ngrams, 3, &bad) == LOOKUP_E_TOKEN);
    lengths[1] = 0; /* an n-gram without followers */
    EXPECT(lookup_static_check_entries(&cache, offsets, lengths, g.n_ngrams, VOCAB - 1, &bad) == LOOKUP_E_SPAN && bad == offsets[1]);
    lengths[1] = g.lengths[1];
    EXPECT(lookup_static_check_tiling(g.n_pairs, offsets, lengths, g.n_ngrams, marks, &covered) == LOOKUP_OK);
    EXPECT(covered == g.n_pairs);
    test_free(keys);
    test_free(offsets);
    test_free(lengths);
    test_free(marks);
    blob_free(&file);
    grouped_free(&g);
    test_free(text);
}

static lookup_status static_with(const blob *file, size_t at, uint64_t value) {
    unsigned char *p = test_copy(file->data, file->size);
    put64(p + at, value);
    lookup_static cache;
    lookup_status status = lookup_static_open(&cache, p, file->size);
    test_free(p);
    return status;
}

static void static_headers_refused(void) {
    int32_t *text = make_text(500, VOCAB, 2);
    blob file = {NULL, 0};
    REQUIRE(make_cache(text, 500, VOCAB, &file) == LOOKUP_OK);
    uint64_t n = get64(file.data + 8), map_size = get64(file.data + 16);
    EXPECT(static_with(&file, 0, get64(file.data)) == LOOKUP_OK);
    EXPECT(static_with(&file, 0, 1) == LOOKUP_E_MAGIC);
    EXPECT(static_with(&file, 8, n + 1) == LOOKUP_E_TRUNCATED);
    EXPECT(static_with(&file, 8, n - 1) == LOOKUP_E_TRUNCATED);
    EXPECT(static_with(&file, 8, 1ull << 61) == LOOKUP_E_TRUNCATED); /* times 8 wraps to 0 */
    EXPECT(static_with(&file, 8, UINT64_MAX) == LOOKUP_E_TRUNCATED);
    EXPECT(static_with(&file, 16, map_size - 1) == LOOKUP_E_TRUNCATED);
    EXPECT(static_with(&file, 16, UINT64_MAX) == LOOKUP_E_TRUNCATED);
    lookup_static cache;
    for (size_t size = 0; size < file.size; ++size) {
        unsigned char *exact = test_copy(file.data, size);
        EXPECT(lookup_static_open(&cache, exact, size) == LOOKUP_E_TRUNCATED);
        test_free(exact);
    }
    blob_free(&file);
    test_free(text);
}

/* constmap2: a fourth header word and key records after the map. */
static void constmap2_is_opened(void) {
    int32_t *text = make_text(500, VOCAB, 3);
    blob file = {NULL, 0};
    REQUIRE(make_cache(text, 500, VOCAB, &file) == LOOKUP_OK);
    size_t n_keys = 3, size = file.size + 8 + 16 * n_keys;
    unsigned char *p = test_memory(size);
    memcpy(p, file.data, 24);
    memcpy(p, "ggngcmp2", 8);
    put64(p + 24, n_keys);
    memcpy(p + 32, file.data + 24, file.size - 24);
    memset(p + size - 16 * n_keys, 0, 16 * n_keys);
    lookup_static cache;
    EXPECT(lookup_static_open(&cache, p, size) == LOOKUP_OK && cache.n_keys == 3 && cache.keys == p + size - 48);
    EXPECT(lookup_static_open(&cache, p, size - 16) == LOOKUP_E_TRUNCATED);
    put64(p + 24, 1ull << 60); /* times 16 wraps to 0 */
    EXPECT(lookup_static_open(&cache, p, size) == LOOKUP_E_TRUNCATED);
    put64(p + 24, n_keys + 1);
    EXPECT(lookup_static_open(&cache, p, size) == LOOKUP_E_TRUNCATED);
    test_free(p);
    blob_free(&file);
    test_free(text);
}

/* One 2-gram (7, 8) whose map value is `value`, over two entries. */
static lookup_status look_up_span(uint64_t value) {
    uint64_t record[] = {7 | 8ull << 32, value}, key = record[0], offset = 0, n = 0;
    uint32_t length = 0;
    blob map = {NULL, 0};
    if (make_map(record, 1, LOOKUP_HASH_XXH64, false, &map) != LOOKUP_OK) return LOOKUP_E_CONSTRUCTION;
    size_t size = LOOKUP_STATIC_HEADER + 16 + map.size;
    unsigned char *p = test_memory(size);
    memcpy(p, "ggngcmap", 8);
    put64(p + 8, 2);
    put64(p + 16, map.size);
    memset(p + 24, 0, 16);
    memcpy(p + 40, map.data, map.size);
    lookup_static cache;
    lookup_status opened = lookup_static_open(&cache, p, size);
    lookup_status one = opened ? opened : lookup_static_followers(&cache, 7, 8, &offset, &n);
    lookup_status many = opened ? opened : lookup_static_spans(&cache, &key, 1, &offset, &length);
    EXPECT(one == many);
    blob_free(&map);
    test_free(p);
    return one;
}

static void spans_past_the_entries(void) {
    EXPECT(look_up_span(0 << 24 | 2) == LOOKUP_OK);
    EXPECT(look_up_span(1ull << 24 | 1) == LOOKUP_OK);
    EXPECT(look_up_span(0) == LOOKUP_E_SPAN); /* length 0 */
    EXPECT(look_up_span(3) == LOOKUP_E_SPAN);
    EXPECT(look_up_span(1ull << 24 | 2) == LOOKUP_E_SPAN);
    EXPECT(look_up_span(2ull << 24 | 1) == LOOKUP_E_SPAN);
    EXPECT(look_up_span(3ull << 24 | 1) == LOOKUP_E_SPAN);
    EXPECT(look_up_span(UINT64_MAX) == LOOKUP_E_SPAN);
    EXPECT(look_up_span(UINT64_MAX << 24 | 1) == LOOKUP_E_SPAN);
}

static lookup_status tiling(const uint64_t *offsets, const uint32_t *lengths, size_t n, uint64_t *covered) {
    uint64_t marks[3] = {0};
    return lookup_static_check_tiling(130, offsets, lengths, n, marks, covered);
}

static void tiling_is_exact(void) {
    uint64_t covered = 0;
    EXPECT(tiling((uint64_t[]){64, 0, 100}, (uint32_t[]){36, 64, 30}, 3, &covered) == LOOKUP_OK && covered == 130);
    EXPECT(tiling((uint64_t[]){0, 64, 101}, (uint32_t[]){64, 36, 29}, 3, &covered) == LOOKUP_E_TILING);
    EXPECT(tiling((uint64_t[]){0, 64, 64}, (uint32_t[]){64, 66, 66}, 3, &covered) == LOOKUP_E_TILING);
    EXPECT(tiling((uint64_t[]){0, 10, 20}, (uint32_t[]){20, 20, 90}, 3, &covered) == LOOKUP_E_TILING);
    EXPECT(tiling((uint64_t[]){0, 64}, (uint32_t[]){64, 67}, 2, &covered) == LOOKUP_E_SPAN);
    EXPECT(tiling((uint64_t[]){0, UINT64_MAX}, (uint32_t[]){64, 66}, 2, &covered) == LOOKUP_E_SPAN);
    EXPECT(tiling(NULL, NULL, 0, &covered) == LOOKUP_E_TILING && covered == 0);
    EXPECT(lookup_static_check_tiling(0, NULL, NULL, 0, NULL, &covered) == LOOKUP_OK);
}

static void map_records_keep_to_the_format(void) {
    uint64_t records[2];
    int32_t good[] = {1, 2}, negative[] = {1, -2};
    uint32_t one = 1, none = 0, most = (1u << 24) - 1, more = 1u << 24;
    EXPECT(lookup_static_records(good, &one, 1, 5, records) == LOOKUP_OK && records[1] == (5u << 24 | 1));
    EXPECT(lookup_static_records(good, &most, 1, 0, records) == LOOKUP_OK && records[1] == most);
    EXPECT(lookup_static_records(good, &more, 1, 0, records) == LOOKUP_E_LIMIT);
    EXPECT(lookup_static_records(good, &none, 1, 0, records) == LOOKUP_E_LIMIT);
    EXPECT(lookup_static_records(good, &one, 1, 1ull << 40, records) == LOOKUP_E_LIMIT);
    EXPECT(lookup_static_records(negative, &one, 1, 0, records) == LOOKUP_E_TOKEN);
}

/* All keys of a foreign file from one known key, with as little room as the contract allows. */
static void recovered_from_one_key(size_t room) {
    int32_t *text = make_text(TEXT, VOCAB, 8);
    blob file = {NULL, 0};
    lookup_static cache;
    REQUIRE(make_cache(text, TEXT, VOCAB, &file) == LOOKUP_OK);
    REQUIRE(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    size_t words = (size_t)cache.n_entries / 64 + 1, n_keys = 1, from = 0, n = 0;
    uint64_t *marks = test_memory(8 * words), *keys = test_memory(16 * (size_t)cache.n_entries), *found = test_memory(16 * room);
    uint64_t offset = 0, length = 0, covered = 0, more = 0;
    uint32_t stamps[VOCAB] = {0}, stamp = 0;
    memset(marks, 0, 8 * words);
    keys[0] = (uint32_t)text[0] | (uint64_t)(uint32_t)text[1] << 32;
    EXPECT(lookup_static_followers(&cache, text[0], text[1], &offset, &length) == LOOKUP_OK && length > 0);
    marks[offset / 64] |= 1ull << (offset % 64);
    covered = length;
    keys[1] = offset << 24 | length;
    while (from < n_keys) {
        lookup_status status = lookup_recover_step(&cache, keys, n_keys, &from, marks, stamps, VOCAB, &stamp, found, room, &n, &more);
        EXPECT(status == LOOKUP_OK);
        if (status != LOOKUP_OK) break;
        memcpy(keys + 2 * n_keys, found, 16 * n);
        n_keys += n;
        covered += more;
    }
    EXPECT(covered == cache.n_entries);
    memset(marks, 0, 8 * words);
    uint64_t *all = test_memory(16 * VOCAB * VOCAB);
    EXPECT(lookup_recover_pairs(&cache, 0, VOCAB, VOCAB, marks, all, VOCAB * VOCAB, &n, &more) == LOOKUP_OK);
    EXPECT(more == cache.n_entries && n == n_keys);
    EXPECT(lookup_recover_pairs(&cache, 0, VOCAB, VOCAB, marks, all, VOCAB * VOCAB - 1, &n, &more) == LOOKUP_E_ARGUMENT);
    test_free(marks);
    test_free(keys);
    test_free(found);
    test_free(all);
    blob_free(&file);
    test_free(text);
}

static void keys_recovered(void) { recovered_from_one_key(TEXT); }
/* No n-gram has more followers than the vocabulary has tokens, so that much room is enough. */
static void keys_recovered_in_little_room(void) { recovered_from_one_key(VOCAB); }

/* Followers whose look-ups still wait take no room once they turn out not to be keys. */
static void recovery_needs_room_for_one_key_only(void) {
    const int32_t ngrams[] = {1, 2, 1, 3};
    const uint32_t lengths[] = {10, 15};
    const uint64_t known[] = {1 | 2ull << 32, 10, 1 | 3ull << 32, 10ull << 24 | 15};
    uint32_t stamps[4] = {0}, stamp = 0; /* most followers lie beyond the stamps */
    int32_t entries[50];
    for (int i = 0; i < 25; ++i) {
        entries[2 * i] = i < 10 ? i : i - 10;
        entries[2 * i + 1] = 1;
    }
    blob file = {NULL, 0};
    lookup_static cache;
    REQUIRE(make_static(ngrams, lengths, entries, 2, 25, &file) == LOOKUP_OK);
    REQUIRE(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    uint64_t marks[1] = {0}, *found = test_memory(16 * 15), covered = 9;
    size_t from = 0, n = 9;
    for (int calls = 0; from < 2 && calls < 3; ++calls)
        EXPECT(lookup_recover_step(&cache, known, 2, &from, marks, stamps, 4, &stamp, found, 15, &n, &covered) == LOOKUP_OK && n == 0);
    EXPECT(from == 2 && covered == 0);
    from = 0;
    EXPECT(lookup_recover_step(&cache, known, 2, &from, marks, stamps, 4, &stamp, found, 9, &n, &covered) == LOOKUP_E_ARGUMENT);
    test_free(found);
    blob_free(&file);
}

void suite_static(void) {
    RUN(static_cache_answers);
    RUN(static_headers_refused);
    RUN(constmap2_is_opened);
    RUN(spans_past_the_entries);
    RUN(tiling_is_exact);
    RUN(map_records_keep_to_the_format);
    RUN(keys_recovered);
    RUN(keys_recovered_in_little_room);
    RUN(recovery_needs_room_for_one_key_only);
}
