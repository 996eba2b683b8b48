/* Seeded mutations of small files: whatever the bytes, opening and reading stay inside them. Meant
 * for the sanitizers; without them it still finds crashes and hangs.   replay [seed [rounds]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define VOCAB 30
#define FNV_START 0xcbf29ce484222325ull

static rng dice;
static int rounds = 20000;

static void overwrite(unsigned char *p, size_t size) {
    static const uint64_t EDGES[] = {0, 1, 3, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000u, 0xffffffffu, 1ull << 40, UINT64_MAX};
    size_t at = rng_below(&dice, size), width = (size_t)1 << rng_below(&dice, 4);
    uint64_t value = EDGES[rng_below(&dice, sizeof EDGES / sizeof *EDGES)];
    if (width > size - at) width = size - at;
    memcpy(p + at, &value, width);
}

/* A changed copy of exactly its own size. */
static blob mutated(const blob *from) {
    size_t size = from->size;
    switch (rng_below(&dice, 8)) {
    case 0: size = rng_below(&dice, size + 1); break;
    case 1: size += 1 + rng_below(&dice, 40); break;
    default: break;
    }
    blob b = {test_memory(size), size};
    for (size_t i = 0; i < size; ++i) b.data[i] = i < from->size ? from->data[i] : (unsigned char)rng_next(&dice);
    for (uint64_t changes = rng_below(&dice, 5); changes > 0 && size > 0; --changes) {
        size_t near = rng_below(&dice, 2) && size > 64 ? 64 : size; /* headers matter most */
        if (rng_below(&dice, 2)) overwrite(b.data, near);
        else b.data[rng_below(&dice, near)] ^= (unsigned char)(1u << rng_below(&dice, 8));
    }
    return b;
}

static void walk_keys(const lookup_static *cache, const uint64_t *keys, size_t n) {
    size_t words = (size_t)cache->n_entries / 64 + 1, from = 0, n_found = 0;
    uint64_t *marks = test_memory(8 * words), *found = test_memory(16 * 4096), covered = 0;
    uint64_t *known = test_memory(16 * n);
    uint32_t stamps[VOCAB] = {0}, stamp = 0;
    memset(marks, 0, 8 * words);
    for (size_t i = 0; i < n; ++i) {
        known[2 * i] = keys[i];
        known[2 * i + 1] = rng_next(&dice) >> rng_below(&dice, 64); /* a hostile span */
    }
    lookup_recover_step(cache, known, n, &from, marks, stamps, VOCAB, &stamp, found, 4096, &n_found, &covered);
    test_free(known);
    EXPECT(n_found <= 4096 && from <= n);
    lookup_recover_pairs(cache, 0, 8, VOCAB, marks, found, 4096, &n_found, &covered);
    test_free(marks);
    test_free(found);
}

static void read_static(const lookup_static *cache) {
    enum { N = 200 };
    uint64_t keys[N], offsets[N], bad = 0;
    uint32_t lengths[N];
    for (int i = 0; i < N; ++i) keys[i] = rng_below(&dice, VOCAB) | rng_below(&dice, VOCAB) << 32;
    for (int i = 0; i < N; ++i) {
        uint64_t offset = 0, n = 0;
        if (lookup_static_followers(cache, (int32_t)(uint32_t)keys[i], (int32_t)(keys[i] >> 32), &offset, &n) == LOOKUP_OK)
            EXPECT(offset <= cache->n_entries && n <= cache->n_entries - offset);
    }
    if (lookup_static_spans(cache, keys, N, offsets, lengths) == LOOKUP_OK)
        lookup_static_check_entries(cache, offsets, lengths, N, VOCAB - 1, &bad);
    lookup_map_verify(&cache->map, cache->map_start);
    walk_keys(cache, keys, N);
}

static void draft_from(const lookup_static *cache, const int32_t *text, size_t n) {
    lookup_cache_params p;
    lookup_source *source = NULL;
    lookup_replay_stats *st = test_memory(sizeof *st);
    memset(st, 0, sizeof *st);
    lookup_cache_defaults(&p);
    EXPECT(lookup_source_ngram_cache(&p, cache, NULL, &source) == LOOKUP_OK);
    EXPECT(lookup_replay_chunk(source, text, n, 3, 8, st) == LOOKUP_OK);
    lookup_source_free(source);
    test_free(st);
}

static void static_files(void) {
    int32_t *text = make_text(400, VOCAB, 1);
    blob file = {NULL, 0};
    REQUIRE(make_cache(text, 400, VOCAB, &file) == LOOKUP_OK);
    int opened = 0;
    for (int i = 0; i < rounds; ++i) {
        blob b = mutated(&file);
        lookup_static cache;
        if (lookup_static_open(&cache, b.data, b.size) == LOOKUP_OK) {
            ++opened;
            read_static(&cache);
            if (opened % 16 == 0) draft_from(&cache, text, 100);
        }
        blob_free(&b);
    }
    EXPECT(opened > rounds / 10);
    blob_free(&file);
    test_free(text);
}

static void legacy_files(void) {
    int32_t *text = make_text(60, VOCAB, 2);
    blob file = {NULL, 0};
    REQUIRE(make_legacy(text, 60, VOCAB, &file) == LOOKUP_OK);
    int passed = 0;
    for (int i = 0; i < rounds; ++i) {
        blob b = mutated(&file);
        lookup_legacy_info info;
        if (lookup_legacy_scan(b.data, b.size, &info) == LOOKUP_OK && b.size > 0) {
            ++passed;
            for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
                lookup_layout l;
                EXPECT(lookup_layout_for(&l, order, info.max_token, 1) == LOOKUP_OK);
                uint64_t *records = test_memory(8 * (size_t)info.n_pairs[order - 1] * (size_t)l.stride);
                EXPECT(lookup_legacy_records(b.data, b.size, &l, 1, 2, records) == LOOKUP_OK);
                test_free(records);
            }
        }
        blob_free(&b);
    }
    EXPECT(passed > rounds / 50);
    blob_free(&file);
    test_free(text);
}

static void key_tables(void) {
    int32_t *text = make_text(300, 5000, 3);
    grouped g;
    REQUIRE(make_grouped(text, 300, 2, 4999, &g) == LOOKUP_OK);
    size_t n = g.n_ngrams, used = 0;
    blob keys = {test_memory(25 * n), 0};
    REQUIRE(lookup_keys_encode(g.ngrams, g.lengths, n, keys.data, 25 * n, &used) == LOOKUP_OK);
    keys.size = used;
    for (int i = 0; i < rounds; ++i) {
        blob b = mutated(&keys);
        size_t wanted = rng_below(&dice, 4) ? n : rng_below(&dice, 2 * n);
        int32_t *ngrams = test_memory(8 * wanted);
        uint32_t *lengths = test_memory(4 * wanted);
        lookup_status status = lookup_keys_decode(b.data, b.size, wanted, ngrams, lengths);
        EXPECT(status == LOOKUP_OK || status == LOOKUP_E_KEYS);
        test_free(ngrams);
        test_free(lengths);
        blob_free(&b);
    }
    blob_free(&keys);
    grouped_free(&g);
    test_free(text);
}

int main(int argc, char **argv) {
    dice.state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    if (argc > 2) rounds = atoi(argv[2]);
    RUN(static_files);
    RUN(legacy_files);
    RUN(key_tables);
    return test_summary();
}
