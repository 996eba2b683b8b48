/* Every allocation of a small scenario fails once. The library's allocation seam is defined here;
 * status.c's own three functions are linked under the names real_lookup_*. */
#include <stdio.h>
#include <string.h>

#include "support.h"

void *lookup_alloc(size_t count, size_t size);
void *lookup_realloc(void *old, size_t count, size_t size);
void lookup_free(void *p);
void *real_lookup_alloc(size_t count, size_t size);
void *real_lookup_realloc(void *old, size_t count, size_t size);
void real_lookup_free(void *p);

static long until_failure; /* 0: never */
static long live;          /* blocks handed out and not yet returned */

static bool fails(void) { return until_failure > 0 && --until_failure == 0; }

void *lookup_alloc(size_t count, size_t size) {
    void *p = fails() ? NULL : real_lookup_alloc(count, size);
    live += p != NULL;
    return p;
}

void *lookup_realloc(void *old, size_t count, size_t size) {
    void *p = fails() ? NULL : real_lookup_realloc(old, count, size);
    live += p != NULL && old == NULL;
    return p;
}

void lookup_free(void *p) {
    live -= p != NULL;
    real_lookup_free(p);
}

#define TEXT 6000
#define VOCAB 500

/* The first failure that is not a test's mistake; later steps run on, as a careless caller would. */
typedef struct {
    lookup_status first;
    bool other; /* something that is neither ok nor out of memory */
} outcome;

static bool step(outcome *o, lookup_status status) {
    if (status != LOOKUP_OK && o->first == LOOKUP_OK) o->first = status;
    if (status != LOOKUP_OK && status != LOOKUP_E_MEMORY) o->other = true;
    return status == LOOKUP_OK;
}

static void count_and_write(outcome *o, const int32_t *text, blob *file) {
    grouped g;
    lookup_layout l;
    if (step(o, make_grouped(text, TEXT, 2, VOCAB - 1, &g))) {
        step(o, make_static(g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs, file));
        grouped_free(&g);
    }
    step(o, lookup_layout_for(&l, 2, VOCAB - 1, 1));
    size_t n = 50000, used = 0, n_ngrams = 0, n_pairs = 0; /* too many for one piece of the sort */
    uint64_t *records = test_memory(16 * n), *scratch = test_memory(16 * n);
    int32_t *ngrams = test_memory(8 * n), *entries = test_memory(8 * n);
    uint32_t *lengths = test_memory(4 * n);
    for (size_t i = 0; i < n; ++i) {
        records[2 * i] = (i * 2654435761u) % (1u << 26);
        records[2 * i + 1] = 1 + i % 3;
    }
    lookup_prune prune = {1, 3};
    if (step(o, lookup_sort(&l, records, scratch, n)))
        step(o, lookup_group(&l, records, n, 1, &prune, ngrams, lengths, entries, &used, &n_ngrams, &n_pairs));
    test_free(records);
    test_free(scratch);
    test_free(ngrams);
    test_free(entries);
    test_free(lengths);
}

static void scan_unsorted_legacy(outcome *o) {
    const int32_t record[] = {1, 2, -1, -1, 3, 9, 1, 5, 1, 7, 1};
    lookup_legacy_info info;
    step(o, lookup_legacy_scan(record, sizeof record, &info));
}

static void draft_and_replay(outcome *o, const int32_t *text, const blob *file) {
    lookup_cache_params p;
    lookup_static cache;
    lookup_table *dynamic = NULL;
    lookup_source *source = NULL;
    lookup_replay_stats *st = test_memory(sizeof *st);
    memset(st, 0, sizeof *st);
    lookup_cache_defaults(&p);
    bool have_cache = file->data != NULL && step(o, lookup_static_open(&cache, file->data, file->size));
    if (step(o, lookup_table_new(&dynamic))) {
        step(o, lookup_table_update(dynamic, text, TEXT / 4));
        bool indexed = step(o, lookup_table_index(dynamic, &p.dynamic));
        step(o, lookup_table_update(dynamic, text + TEXT / 4, TEXT / 4)); /* the index grows too */
        if (indexed) step(o, lookup_source_ngram_cache(&p, have_cache ? &cache : NULL, dynamic, &source));
    }
    for (int chunk = 0; source != NULL && chunk < 2; ++chunk) {
        int32_t draft[4];
        size_t n_draft = 0;
        step(o, lookup_replay_chunk(source, text + TEXT / 2, TEXT / 2, 10, 8, st));
        step(o, lookup_source_begin(source, text, 100)); /* goes on after a failure */
        step(o, lookup_source_draft(source, text, 120, draft, NULL, 4, &n_draft));
    }
    lookup_source_free(source);
    lookup_table_free(dynamic);
    test_free(st);
}

static outcome scenario(void) {
    outcome o = {LOOKUP_OK, false};
    blob file = {NULL, 0};
    int32_t *text = make_text(TEXT, VOCAB, 3);
    count_and_write(&o, text, &file);
    scan_unsorted_legacy(&o);
    draft_and_replay(&o, text, &file);
    blob_free(&file);
    test_free(text);
    return o;
}

static void every_allocation_fails_once(void) {
    long k = 0;
    bool reached = true;
    while (reached && k < 10000) {
        until_failure = ++k;
        outcome o = scenario();
        reached = until_failure == 0;
        EXPECT(o.first == (reached ? LOOKUP_E_MEMORY : LOOKUP_OK));
        EXPECT(!o.other);
        EXPECT(live == 0);
        until_failure = 0;
    }
    EXPECT(k > 20 && !reached);
    printf("oom: %ld allocations, each failed once\n", k - 1);
}

int main(void) {
    RUN(every_allocation_fails_once);
    return test_summary();
}
