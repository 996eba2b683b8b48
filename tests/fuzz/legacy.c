/* Any bytes as a legacy file: checked, walked, turned into records, grouped, written again. */
#include "fuzz.h"

#include <string.h>

typedef struct {
    lookup_layout layout;
    uint64_t *records;
    int32_t *ngrams, *entries;
    uint32_t *lengths;
    size_t n, n_ngrams, n_pairs;
} order_parts;

/* All records of one order, summed where an n-gram stands twice. */
static order_parts read_order(const unsigned char *file, size_t size, const lookup_legacy_info *info, int32_t order, int64_t num) {
    order_parts o = {.n = (size_t)info->n_pairs[order - 1]};
    MUST(lookup_layout_for(&o.layout, order, info->max_token, 1) == LOOKUP_OK);
    size_t bytes = 8 * o.n * (size_t)o.layout.stride, used = 0, n_sums = 0;
    uint64_t *scratch = test_memory(bytes);
    o.records = test_memory(bytes);
    o.ngrams = test_memory(4 * o.n * (size_t)order);
    o.entries = test_memory(8 * o.n);
    o.lengths = test_memory(4 * o.n);
    MUST(lookup_legacy_records(file, size, &o.layout, num, 2, o.records, o.n) == LOOKUP_OK);
    MUST(lookup_sort(&o.layout, o.records, scratch, o.n) == LOOKUP_OK);
    lookup_prune all = {1, 0};
    MUST(lookup_group(&o.layout, o.records, o.n, 1, &all, o.ngrams, o.lengths, o.entries, &used, &o.n_ngrams, &o.n_pairs) == LOOKUP_OK);
    MUST(used == o.n && o.n_ngrams <= info->n_ngrams[order - 1] && o.n_pairs <= o.n);
    MUST(lookup_aggregate(&o.layout, o.records, o.n, scratch, &n_sums) == LOOKUP_OK && n_sums == o.n_pairs);
    test_free(scratch);
    return o;
}

static void free_order(order_parts *o) {
    test_free(o->records);
    test_free(o->ngrams);
    test_free(o->entries);
    test_free(o->lengths);
}

/* What was read, written in order, is a file that says the same and ascends. */
static blob rewrite(const unsigned char *file, size_t size, const lookup_legacy_info *info, lookup_legacy_info *again, int64_t num) {
    blob b = {test_memory(size), 0};
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        order_parts o = read_order(file, size, info, order, num);
        size_t bytes = 20 * o.n_ngrams + 8 * o.n_pairs;
        MUST(bytes <= size - b.size);
        MUST(lookup_legacy_write(order, o.ngrams, o.lengths, o.entries, o.n_ngrams, b.data + b.size) == LOOKUP_OK);
        b.size += bytes;
        free_order(&o);
    }
    MUST(lookup_legacy_scan(b.data, b.size, again) == LOOKUP_OK && again->ascending && again->bytes == b.size);
    return b;
}

/* Walking from boundary to boundary ends at the end. */
static void walk(const unsigned char *file, size_t size) {
    for (size_t step = 1; step <= size; step = 3 * step + 1) {
        size_t at = 0, end = 0;
        while (at < size) {
            MUST(lookup_legacy_boundary(file, size, at, step, &end) == LOOKUP_OK);
            MUST(end > at && end <= size && (end - at >= step || end == size));
            at = end;
        }
    }
}

static void tables(const unsigned char *file, size_t size, const lookup_legacy_info *info) {
    lookup_table *table = NULL;
    MUST(lookup_table_new(&table) == LOOKUP_OK);
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        order_parts o = read_order(file, size, info, order, 2);
        lookup_status status = lookup_table_add(table, order, o.ngrams, o.lengths, o.entries, o.n_ngrams, o.n_pairs);
        MUST(status == LOOKUP_OK);
        const int32_t *pair = o.entries;
        for (size_t g = 0; g < o.n_ngrams; pair += 2 * o.lengths[g++]) {
            size_t n = 0;
            uint32_t total = 0, max = 0;
            MUST(lookup_table_followers(table, o.ngrams + (size_t)order * g, order, NULL, 0, &n, &total, &max) == LOOKUP_OK);
            MUST(n >= o.lengths[g] && max >= (uint32_t)pair[1] && total >= max);
        }
        free_order(&o);
    }
    lookup_table_free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned char *file = test_copy(data, size);
    lookup_legacy_info info, again, twice;
    lookup_status status = lookup_legacy_scan(file, size, &info);
    MUST(info.bytes <= size && (status == LOOKUP_OK) == (info.bytes == size));
    size_t end = 0;
    lookup_legacy_boundary(file, size, 0, size, &end); /* hostile bytes too */
    if (size > 0 && info.bytes > 0) { /* what precedes the fault is a file of its own */
        size = (size_t)info.bytes;
        MUST(lookup_legacy_scan(file, size, &info) == LOOKUP_OK);
        walk(file, size);
        tables(file, size, &info);
        blob scaled = rewrite(file, size, &info, &again, 3);
        blob_free(&scaled);
        blob same = rewrite(file, size, &info, &again, 2);
        MUST(!info.ascending || (same.size == size && memcmp(same.data, file, size) == 0));
        blob fixed = rewrite(same.data, same.size, &again, &twice, 2);
        MUST(fixed.size == same.size && memcmp(fixed.data, same.data, same.size) == 0);
        blob_free(&same);
        blob_free(&fixed);
    }
    test_free(file);
    return 0;
}
