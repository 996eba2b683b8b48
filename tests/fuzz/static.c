/* Any bytes as a static cache file: opened, verified, looked up, enumerated, drafted from. */
#include "fuzz.h"

#include <string.h>

#define FNV_START 0xcbf29ce484222325ull
#define SMALL 12  /* ids below it are paired with each other */
#define LISTED 24 /* followers paired with each other, and stored keys looked up */
#define KEYS (SMALL * SMALL + LISTED * LISTED + LISTED)
#define STAMPS 64
#define ROOM 4096

static uint64_t key_of(uint64_t t0, uint64_t t1) { return (uint32_t)t0 | t1 << 32; }

/* The keys that a file is likely to hold. */
static size_t likely_keys(const lookup_static *cache, uint64_t *keys) {
    size_t n = 0, listed = cache->n_entries < LISTED ? (size_t)cache->n_entries : LISTED;
    for (uint64_t a = 0; a < SMALL; ++a)
        for (uint64_t b = 0; b < SMALL; ++b) keys[n++] = key_of(a, b);
    for (size_t a = 0; a < listed; ++a)
        for (size_t b = 0; b < listed; ++b) keys[n++] = key_of(get32(cache->entries + 8 * a), get32(cache->entries + 8 * b));
    for (size_t k = 0; cache->keys != NULL && k < cache->n_keys && k < LISTED; ++k) keys[n++] = get64(cache->keys + 16 * k);
    return n;
}

/* One by one and many at a time must agree. */
static void look_up(const lookup_static *cache, const uint64_t *keys, size_t n, uint64_t *offsets, uint32_t *lengths) {
    lookup_status many = lookup_static_spans(cache, keys, n, offsets, lengths);
    MUST(many == LOOKUP_OK || many == LOOKUP_E_SPAN);
    bool bad_span = false;
    for (size_t i = 0; i < n; ++i) {
        uint64_t offset = 0, length = 0, value;
        uint8_t found;
        lookup_status one = lookup_static_followers(cache, (int32_t)(uint32_t)keys[i], (int32_t)(keys[i] >> 32), &offset, &length);
        MUST(lookup_map_get_many(&cache->map, keys + i, 1, &value, &found) == LOOKUP_OK);
        MUST(one == LOOKUP_OK || (one == LOOKUP_E_SPAN && found));
        MUST(one != LOOKUP_OK || (length > 0) == (found != 0));
        MUST(offset <= cache->n_entries && length <= cache->n_entries - offset);
        MUST(many != LOOKUP_OK || (one == LOOKUP_OK && offsets[i] == offset && lengths[i] == length));
        bad_span |= one != LOOKUP_OK;
    }
    MUST(bad_span == (many == LOOKUP_E_SPAN));
}

/* The spans of the keys that were found; absent ones have none. */
static void check_spans(const lookup_static *cache, uint64_t *offsets, uint32_t *lengths, size_t n) {
    size_t words = (size_t)cache->n_entries / 64 + 1, n_found = 0;
    uint64_t *marks = test_memory(8 * words), covered = 0, bad = 0;
    memset(marks, 0, 8 * words);
    if (n > 0 && lengths[0] == 0) MUST(lookup_static_check_entries(cache, offsets, lengths, n, INT32_MAX, &bad) == LOOKUP_E_SPAN);
    for (size_t i = 0; i < n; ++i) {
        offsets[n_found] = offsets[i];
        lengths[n_found] = lengths[i];
        n_found += lengths[i] > 0;
    }
    if (lookup_static_check_entries(cache, offsets, lengths, n_found, INT32_MAX, &bad) == LOOKUP_OK)
        for (size_t i = 0; i < n_found; ++i) MUST((int32_t)get32(cache->entries + 8 * offsets[i] + 4) > 0);
    lookup_static_check_tiling(cache->n_entries, offsets, lengths, n_found, marks, &covered);
    test_free(marks);
}

/* Every span once: no more can be covered than there is. */
static void enumerate(const lookup_static *cache, const uint64_t *keys, size_t n) {
    size_t words = (size_t)cache->n_entries / 64 + 1, from = 0, n_found = 0;
    uint64_t *marks = test_memory(8 * words), *found = test_memory(16 * ROOM), *known = test_memory(16 * n), covered = 0;
    uint32_t stamps[STAMPS] = {0}, stamp = 0;
    memset(marks, 0, 8 * words);
    for (size_t i = 0; i < n; ++i) {
        known[2 * i] = keys[i];
        known[2 * i + 1] = get64(cache->map_start + i % (cache->map_size / 8) * 8); /* hostile spans */
        if (i % 2 == 0) known[2 * i + 1] = (cache->n_entries ? i % cache->n_entries : 0) << LOOKUP_SPAN_BITS | 1;
    }
    lookup_recover_step(cache, known, n, &from, marks, stamps, STAMPS, &stamp, found, ROOM, &n_found, &covered);
    MUST(n_found <= ROOM && from <= n);
    if (lookup_recover_pairs(cache, 0, 8, STAMPS, marks, found, ROOM, &n_found, &covered) == LOOKUP_OK) MUST(n_found <= 8 * STAMPS);
    test_free(known);
    test_free(marks);
    test_free(found);
}

static void draft_from(const lookup_static *cache) {
    int32_t text[16], draft[8];
    lookup_cache_params p;
    lookup_source *source = NULL;
    for (size_t i = 0; i < 16; ++i)
        text[i] = i % 4 < 2 || cache->n_entries == 0 ? (int32_t)(i % 5) : (int32_t)(get32(cache->entries + 8 * (i % cache->n_entries)) & INT32_MAX);
    lookup_cache_defaults(&p);
    MUST(lookup_source_ngram_cache(&p, cache, NULL, &source) == LOOKUP_OK);
    for (size_t n = 1; n <= 16; ++n) {
        size_t n_draft = 0;
        uint8_t tiers[8];
        MUST(lookup_source_draft(source, text, n, draft, tiers, 8, &n_draft) == LOOKUP_OK && n_draft <= 8);
        for (size_t i = 0; i < n_draft; ++i) MUST(draft[i] >= 0 && tiers[i] < LOOKUP_TIERS);
    }
    lookup_source_free(source);
}

/* With its checksum put right, whatever opens passes for unchanged. */
static void verify(const lookup_static *cache) {
    lookup_status status = lookup_map_verify(&cache->map, cache->map_start);
    MUST(status == LOOKUP_OK || status == LOOKUP_E_CHECKSUM);
    size_t bytes = (size_t)cache->map.bytes;
    unsigned char *copy = test_copy(cache->map_start, bytes);
    lookup_map map;
    put64(copy + bytes - 8, lookup_fnv1a(FNV_START, copy, bytes - 8));
    MUST(lookup_fnv1a_serial(FNV_START, copy, bytes - 8) == get64(copy + bytes - 8));
    MUST(lookup_map_open(&map, copy, bytes) == LOOKUP_OK && map.bytes == bytes);
    MUST(lookup_map_verify(&map, copy) == LOOKUP_OK);
    test_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned char *file = test_copy(data, size);
    lookup_static cache;
    if (lookup_static_open(&cache, file, size) == LOOKUP_OK) {
        uint64_t keys[KEYS], offsets[KEYS];
        uint32_t lengths[KEYS];
        size_t n = likely_keys(&cache, keys);
        verify(&cache);
        memset(lengths, 0, sizeof lengths);
        memset(offsets, 0, sizeof offsets);
        look_up(&cache, keys, n, offsets, lengths);
        check_spans(&cache, offsets, lengths, n);
        enumerate(&cache, keys, n);
        draft_from(&cache);
    }
    test_free(file);
    return 0;
}
