/* map.c, map_build.c */
#include <string.h>

#include "suites.h"
#include "support.h"

#define FNV_START 0xcbf29ce484222325ull

static uint64_t *random_records(size_t n, uint64_t seed) {
    rng r = {seed};
    uint64_t *records = test_memory(16 * n);
    for (size_t i = 0; i < n; ++i) { /* ascending, hence distinct */
        uint64_t before = i ? records[2 * i - 2] : 0;
        records[2 * i] = before + 1 + rng_below(&r, 1u << 20);
        records[2 * i + 1] = rng_next(&r);
    }
    return records;
}

static void answers_every_key(const blob *file, const uint64_t *records, size_t n) {
    lookup_map map;
    REQUIRE(lookup_map_open(&map, file->data, file->size) == LOOKUP_OK);
    EXPECT(map.bytes == file->size);
    EXPECT(lookup_map_verify(&map, file->data) == LOOKUP_OK);
    uint64_t *keys = test_memory(16 * n), *values = test_memory(16 * n);
    uint8_t *found = test_memory(2 * n);
    for (size_t i = 0; i < n; ++i) {
        keys[i] = records[2 * i];
        keys[n + i] = records[2 * i] + (1ull << 62); /* beyond every key that is there */
    }
    REQUIRE(lookup_map_get_many(&map, keys, 2 * n, values, found) == LOOKUP_OK);
    size_t right = 0, absent = 0;
    for (size_t i = 0; i < n; ++i) right += found[i] == 1 && values[i] == records[2 * i + 1];
    for (size_t i = n; i < 2 * n; ++i) absent += found[i] == 0 && values[i] == 0;
    EXPECT(right == n);
    EXPECT(absent == n);
    test_free(keys);
    test_free(values);
    test_free(found);
}

static void a_size(size_t n, int32_t hash) {
    uint64_t *records = random_records(n, n + 7);
    blob one = {NULL, 0}, other = {NULL, 0};
    EXPECT(make_map(records, n, hash, false, &one) == LOOKUP_OK);
    EXPECT(make_map(records, n, hash, true, &other) == LOOKUP_OK);
    REQUIRE(one.data && other.data);
    EXPECT(one.size == other.size && memcmp(one.data, other.data, one.size) == 0); /* halves swapped */
    answers_every_key(&one, records, n);
    blob_free(&one);
    blob_free(&other);
    test_free(records);
}

static void sizes_zero_to_five(void) {
    for (size_t n = 0; n <= 5; ++n) {
        a_size(n, LOOKUP_HASH_XXH64);
        a_size(n, LOOKUP_HASH_XXH3);
    }
}
static void a_thousand(void) { a_size(1000, LOOKUP_HASH_XXH64); }
static void a_hundred_thousand(void) { a_size(100000, LOOKUP_HASH_XXH3); }
/* Sizes at which the first geometry fails almost always (pitfall 6). */
static void fuse_sizes_that_fail_first(void) {
    a_size(11480, LOOKUP_HASH_XXH64);
    a_size(11500, LOOKUP_HASH_XXH64);
}

static void a_key_that_stands_twice(void) {
    uint64_t records[] = {1, 10, 2, 20, 2, 30, 3, 40};
    blob map = {NULL, 0};
    EXPECT(make_map(records, 4, LOOKUP_HASH_XXH64, false, &map) == LOOKUP_E_DUPLICATE);
    blob_free(&map);
}

/* The first slot of a key under a plan, from the format's text: an oracle of its own. */
static uint64_t first_slot(const lookup_map_plan *plan, uint64_t key) {
    uint64_t h = lookup_key_xxh64((int32_t)(uint32_t)key, (int32_t)(key >> 32)) + plan->seed;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
    h ^= h >> 33;
    uint64_t span = (uint64_t)plan->segment_count * plan->segment_length;
    uint64_t high = h >> 32, low = h & 0xffffffffu; /* span < 2^32 */
    return (high * span + ((low * span) >> 32)) >> 32;
}

/* More keys chosen into one slot than its counter holds: the seeds are public, so a corpus can do
 * it. Once such a counter was taken at its word, the map was finished with wrong values. */
static void crowded(size_t n, size_t crowd, uint64_t slot) {
    lookup_map_plan plan;
    REQUIRE(lookup_map_plan_first(&plan, n, LOOKUP_HASH_XXH64) == LOOKUP_OK);
    uint64_t *records = test_memory(16 * n), key = 1;
    for (size_t i = 0; i < n; ++key) {
        if (i < crowd && first_slot(&plan, key) != slot) continue;
        records[2 * i] = key;
        records[2 * i++ + 1] = key * 3;
    }
    blob map = {NULL, 0};
    EXPECT(make_map(records, n, LOOKUP_HASH_XXH64, false, &map) == LOOKUP_OK);
    if (map.data != NULL) answers_every_key(&map, records, n);
    blob_free(&map);
    test_free(records);
}

static void keys_crowded_into_one_slot(void) {
    crowded(10000, 255, 2100);
    crowded(10000, 256, 2100);
    crowded(10000, 270, 2100);
    crowded(10000, 320, 2100);
}

static void plans_end(void) {
    lookup_map_plan plan;
    REQUIRE(lookup_map_plan_first(&plan, 11480, LOOKUP_HASH_XXH64) == LOOKUP_OK);
    int more = 0;
    while (lookup_map_plan_next(&plan) == LOOKUP_OK && more < 1000) ++more;
    EXPECT(more == LOOKUP_MAP_MAX_TRIES - 1);
    EXPECT(lookup_map_plan_first(&plan, 1ull << 32, LOOKUP_HASH_XXH64) == LOOKUP_E_LIMIT);
    EXPECT(lookup_map_plan_first(&plan, UINT64_MAX, LOOKUP_HASH_XXH64) == LOOKUP_E_LIMIT);
    EXPECT(lookup_map_plan_first(&plan, 1, 7) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_map_plan_first(NULL, 1, LOOKUP_HASH_XXH64) == LOOKUP_E_ARGUMENT);
}

/* A header field replaced and the checksum made to fit (pitfall 10). */
static lookup_status forged(const blob *map, size_t at, uint32_t value) {
    unsigned char *p = test_copy(map->data, map->size);
    put32(p + at, value);
    put64(p + map->size - 8, lookup_fnv1a_serial(FNV_START, p, map->size - 8));
    lookup_map view;
    lookup_status status = lookup_map_open(&view, p, map->size);
    test_free(p);
    return status;
}

static void forged_headers(void) {
    uint64_t *records = random_records(1000, 5);
    blob map = {NULL, 0};
    REQUIRE(make_map(records, 1000, LOOKUP_HASH_XXH64, false, &map) == LOOKUP_OK);
    uint32_t slots = get32(map.data + 24), length = get32(map.data + 16);
    EXPECT(forged(&map, 24, slots) == LOOKUP_OK);
    EXPECT(forged(&map, 16, 0) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 16, 3) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 16, 1u << 31) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 16, 2 * length) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 20, 0) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 20, UINT32_MAX) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 20, UINT32_MAX - 1) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 24, slots - 1) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 24, slots + 1) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 24, UINT32_MAX) == LOOKUP_E_GEOMETRY);
    EXPECT(forged(&map, 0, 0) == LOOKUP_E_MAGIC);
    blob_free(&map);
    test_free(records);
}

/* Self-consistent, but larger than the bytes that are there. */
static void forged_size(void) {
    unsigned char *p = test_memory(LOOKUP_MAP_HEADER + 8);
    memcpy(p, "VMAP0001", 8);
    put64(p + 8, 0);
    put32(p + 16, 1u << 30);
    put32(p + 20, 1);
    put32(p + 24, 3u << 30);
    put32(p + 28, 0);
    put64(p + 32, 0);
    lookup_map map;
    EXPECT(lookup_map_open(&map, p, LOOKUP_MAP_HEADER + 8) == LOOKUP_E_TRUNCATED);
    test_free(p);
}

static void every_prefix_is_refused(void) {
    uint64_t *records = random_records(5, 5);
    blob map = {NULL, 0};
    REQUIRE(make_map(records, 5, LOOKUP_HASH_XXH64, false, &map) == LOOKUP_OK);
    for (size_t n = 0; n < map.size; ++n) {
        unsigned char *exact = test_copy(map.data, n);
        lookup_map view;
        EXPECT(lookup_map_open(&view, exact, n) == LOOKUP_E_TRUNCATED);
        test_free(exact);
    }
    blob_free(&map);
    test_free(records);
}

static void every_byte_counts(void) {
    uint64_t *records = random_records(9, 6);
    blob map = {NULL, 0};
    REQUIRE(make_map(records, 9, LOOKUP_HASH_XXH64, false, &map) == LOOKUP_OK);
    for (size_t i = 0; i < map.size; ++i) {
        map.data[i] ^= 0x10;
        lookup_map view;
        if (lookup_map_open(&view, map.data, map.size) == LOOKUP_OK)
            EXPECT(lookup_map_verify(&view, map.data) == LOOKUP_E_CHECKSUM);
        map.data[i] ^= 0x10;
    }
    blob_free(&map);
    test_free(records);
}

static void closed_and_impossible_views(void) {
    lookup_map map;
    memset(&map, 0, sizeof map);
    uint64_t keys[20] = {0}, values[20];
    uint8_t found[20];
    memset(found, 1, sizeof found);
    EXPECT(lookup_map_get_many(&map, keys, 20, values, found) == LOOKUP_OK);
    for (int i = 0; i < 20; ++i) EXPECT(found[i] == 0 && values[i] == 0);
    EXPECT(lookup_map_get_many(&map, NULL, 0, NULL, NULL) == LOOKUP_OK);
    EXPECT(lookup_map_get_many(&map, NULL, 1, values, found) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_map_open(NULL, keys, sizeof keys) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_map_open(&map, NULL, 100) == LOOKUP_E_ARGUMENT);
    EXPECT(lookup_map_verify(&map, keys) == LOOKUP_E_ARGUMENT);
}

void suite_map(void) {
    RUN(sizes_zero_to_five);
    RUN(a_thousand);
    RUN(a_hundred_thousand);
    RUN(fuse_sizes_that_fail_first);
    RUN(a_key_that_stands_twice);
    RUN(keys_crowded_into_one_slot);
    RUN(plans_end);
    RUN(forged_headers);
    RUN(forged_size);
    RUN(every_prefix_is_refused);
    RUN(every_byte_counts);
    RUN(closed_and_impossible_views);
}
