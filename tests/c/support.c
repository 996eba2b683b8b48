#include "support.h"

#include <string.h>

void blob_free(blob *b) {
    test_free(b->data);
    *b = (blob){NULL, 0};
}

void put32(unsigned char *p, uint32_t v) { memcpy(p, &v, sizeof v); }
void put64(unsigned char *p, uint64_t v) { memcpy(p, &v, sizeof v); }
uint32_t get32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
uint64_t get64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static lookup_status one_try(const lookup_map_plan *plan, const uint64_t *records, bool swapped, void *out, void *scratch) {
    for (int phase = 0; phase < LOOKUP_MAP_PHASES; ++phase)
        for (int half = 0; half < 2; ++half) {
            lookup_status status = lookup_map_phase(plan, phase, half ^ (int)swapped, records, out, scratch);
            if (status != LOOKUP_OK) return status;
        }
    return LOOKUP_OK;
}

lookup_status make_map(const uint64_t *records, size_t n, int32_t hash, bool swapped, blob *map) {
    lookup_map_plan plan;
    lookup_status status = lookup_map_plan_first(&plan, n, hash);
    while (status == LOOKUP_OK) {
        unsigned char *out = test_memory((size_t)plan.map_bytes), *scratch = test_memory((size_t)plan.scratch_bytes);
        memset(out, 0xaa, (size_t)plan.map_bytes); /* what a reused arena holds must not matter */
        memset(scratch, 0xaa, (size_t)plan.scratch_bytes);
        status = one_try(&plan, records, swapped, out, scratch);
        test_free(scratch);
        *map = (blob){out, (size_t)plan.map_bytes};
        if (status == LOOKUP_OK) return status;
        blob_free(map);
        if (status == LOOKUP_E_CONSTRUCTION) status = lookup_map_plan_next(&plan);
    }
    return status;
}

lookup_status make_static(const int32_t *ngrams, const uint32_t *lengths, const int32_t *entries, size_t n_ngrams, size_t n_pairs, blob *file) {
    uint64_t *records = test_memory(16 * n_ngrams);
    blob map = {NULL, 0};
    lookup_status status = lookup_static_records(ngrams, lengths, n_ngrams, 0, records);
    if (status == LOOKUP_OK) status = make_map(records, n_ngrams, LOOKUP_HASH_XXH64, false, &map);
    if (status == LOOKUP_OK) {
        size_t head = LOOKUP_STATIC_HEADER + 8 * n_pairs;
        *file = (blob){test_memory(head + map.size), head + map.size};
        memcpy(file->data, "ggngcmap", 8);
        put64(file->data + 8, n_pairs);
        put64(file->data + 16, map.size);
        memcpy(file->data + LOOKUP_STATIC_HEADER, entries, 8 * n_pairs);
        memcpy(file->data + head, map.data, map.size);
    }
    blob_free(&map);
    test_free(records);
    return status;
}

lookup_status make_grouped(const int32_t *tokens, size_t n, int32_t order, int32_t max_token, grouped *g) {
    lookup_layout l;
    lookup_status status = lookup_layout_for(&l, order, max_token, 0);
    if (status != LOOKUP_OK) return status;
    int64_t ends[1] = {(int64_t)n};
    size_t windows = (size_t)lookup_count_windows(ends, 1, order, 0), used = 0;
    uint64_t *keys = test_memory(8 * windows * (size_t)l.key_words);
    uint64_t *scratch = test_memory(8 * windows * (size_t)l.key_words);
    uint64_t *starts = test_memory(8 * ((1u << LOOKUP_PARTITION_BITS) + 1));
    *g = (grouped){.order = order, .ngrams = test_memory(4 * windows * (size_t)order),
                   .entries = test_memory(8 * windows), .lengths = test_memory(4 * windows)};
    lookup_prune all = {1, 0};
    status = lookup_pack(&l, tokens, n, ends, 1, 0, keys, starts);
    if (status == LOOKUP_OK) status = lookup_sort(&l, keys, scratch, windows);
    if (status == LOOKUP_OK)
        status = lookup_group(&l, keys, windows, 1, &all, g->ngrams, g->lengths, g->entries, &used, &g->n_ngrams, &g->n_pairs);
    test_free(keys);
    test_free(scratch);
    test_free(starts);
    if (status != LOOKUP_OK) grouped_free(g);
    return status;
}

void grouped_free(grouped *g) {
    test_free(g->ngrams);
    test_free(g->entries);
    test_free(g->lengths);
    *g = (grouped){.order = 0};
}

int32_t *make_text(size_t n, int32_t vocab, uint64_t seed) {
    rng r = {seed};
    int32_t *text = test_memory(4 * n);
    for (size_t i = 0; i < n; ++i) {
        bool copy = i > 40 && rng_below(&r, 8) != 0;
        text[i] = copy ? text[i - 37] : (int32_t)rng_below(&r, (uint64_t)vocab);
    }
    return text;
}

lookup_status make_cache(const int32_t *text, size_t n, int32_t vocab, blob *file) {
    grouped g;
    lookup_status status = make_grouped(text, n, 2, vocab - 1, &g);
    if (status != LOOKUP_OK) return status;
    status = make_static(g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs, file);
    grouped_free(&g);
    return status;
}

lookup_status make_legacy(const int32_t *text, size_t n, int32_t vocab, blob *file) {
    *file = (blob){test_memory(28 * 4 * n), 0}; /* no more than one record with one pair a window */
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        grouped g;
        lookup_status status = make_grouped(text, n, order, vocab - 1, &g);
        if (status == LOOKUP_OK) {
            status = lookup_legacy_write(order, g.ngrams, g.lengths, g.entries, g.n_ngrams, file->data + file->size);
            file->size += 20 * g.n_ngrams + 8 * g.n_pairs;
            grouped_free(&g);
        }
        if (status != LOOKUP_OK) {
            blob_free(file);
            return status;
        }
    }
    unsigned char *exact = test_copy(file->data, file->size);
    test_free(file->data);
    file->data = exact;
    return LOOKUP_OK;
}
