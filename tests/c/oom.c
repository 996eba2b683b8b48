/* Every allocation of a small build, from counting to the last draft, fails once. The library's
 * allocation seam is defined here; status.c's own three functions are linked under the names
 * real_lookup_*. Under the address sanitizer every failure is followed by a search for leaks. */
#include <stdio.h>
#include <string.h>

#include "support.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAKS_SEEN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(LEAKS_SEEN)
#include <fcntl.h>
#include <sanitizer/lsan_interface.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define SEARCHED ", no leaks found after any"
static int leaks(void) { return __lsan_do_recoverable_leak_check(); }
#else
#define SEARCHED ""
static int leaks(void) { return 0; }
#endif

void *lookup_alloc(size_t count, size_t size);
void *lookup_realloc(void *old, size_t count, size_t size);
void lookup_free(void *p);
void *real_lookup_alloc(size_t count, size_t size);
void *real_lookup_realloc(void *old, size_t count, size_t size);
void real_lookup_free(void *p);

static long until_failure; /* 0: never */
static long live;          /* blocks handed out and not yet returned */
static bool regrown;       /* the one that failed would have changed a block's size */

static bool fails(void) { return until_failure > 0 && --until_failure == 0; }

void *lookup_alloc(size_t count, size_t size) {
    void *p = fails() ? NULL : real_lookup_alloc(count, size);
    live += p != NULL;
    return p;
}

void *lookup_realloc(void *old, size_t count, size_t size) {
    bool failed = fails();
    regrown |= failed && old != NULL;
    void *p = failed ? NULL : real_lookup_realloc(old, count, size);
    live += p != NULL && old == NULL;
    return p;
}

void lookup_free(void *p) {
    live -= p != NULL;
    real_lookup_free(p);
}

#define TEXT 6000
#define VOCAB 500
#define ROOM 4

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

/* ---- counting: packed batches -> sorted, summed runs -> one merged run -> grouped n-grams */

/* The counted run of one half of the text, as one that is spilled. */
static uint64_t *one_run(outcome *o, const int32_t *text, size_t n, int32_t order, size_t *n_out) {
    lookup_layout raw;
    int64_t end = (int64_t)n;
    uint64_t *starts = test_memory(8 * ((1u << LOOKUP_PARTITION_BITS) + 1));
    uint64_t *keys = test_memory(24 * n), *gathered = test_memory(24 * n), *run = test_memory(32 * n);
    size_t windows = (size_t)lookup_count_windows(&end, 1, order, 0);
    step(o, lookup_layout_for(&raw, order, VOCAB - 1, 0));
    *n_out = 0;
    const uint64_t *all_keys[] = {keys}, *all_starts[] = {starts};
    if (step(o, lookup_pack(&raw, text, n, &end, 1, 0, keys, starts)) &&
        step(o, lookup_gather(all_keys, all_starts, 1, 0, 1u << LOOKUP_PARTITION_BITS, raw.key_words, gathered)) &&
        step(o, lookup_sort(&raw, gathered, keys, windows)))
        step(o, lookup_aggregate(&raw, gathered, windows, run, n_out));
    test_free(starts);
    test_free(keys);
    test_free(gathered);
    return run;
}

/* All n-grams of one order, pruned; released with grouped_free. */
static bool count(outcome *o, const int32_t *text, int32_t order, grouped *g) {
    lookup_layout l;
    lookup_prune prune = {1, 3};
    size_t half = TEXT / 2, n[2] = {0, 0}, n_merged = 0, used = 0;
    uint64_t *runs[] = {one_run(o, text, half, order, &n[0]), one_run(o, text + half, half, order, &n[1])};
    uint64_t *merged = test_memory(32 * TEXT);
    *g = (grouped){.order = order, .ngrams = test_memory(16 * TEXT), .entries = test_memory(8 * TEXT), .lengths = test_memory(4 * TEXT)};
    step(o, lookup_layout_for(&l, order, VOCAB - 1, 1));
    bool done = step(o, lookup_merge_two(&l, runs[0], n[0], runs[1], n[1], merged, &n_merged)) &&
                step(o, lookup_group(&l, merged, n_merged, 1, &prune, g->ngrams, g->lengths, g->entries, &used, &g->n_ngrams, &g->n_pairs));
    test_free(runs[0]);
    test_free(runs[1]);
    test_free(merged);
    if (!done) grouped_free(g);
    return done;
}

/* Too many records for one piece of the sort. */
static void sort_many(outcome *o) {
    enum { N = 50000 };
    lookup_layout l;
    uint64_t *records = test_memory(16 * N), *scratch = test_memory(16 * N);
    step(o, lookup_layout_for(&l, 2, VOCAB - 1, 1));
    for (size_t i = 0; i < N; ++i) {
        records[2 * i] = (i * 2654435761u) % (1u << 26);
        records[2 * i + 1] = 1 + i % 3;
    }
    step(o, lookup_sort(&l, records, scratch, N));
    test_free(records);
    test_free(scratch);
}

/* ---- files: a constmap with its keys, a legacy file, both read back */

static void key_table(outcome *o, const grouped *g) {
    size_t room = 25 * g->n_ngrams, used = 0;
    uint8_t *table = test_memory(room);
    int32_t *ngrams = test_memory(8 * g->n_ngrams);
    uint32_t *lengths = test_memory(4 * g->n_ngrams);
    if (step(o, lookup_keys_encode(g->ngrams, g->lengths, g->n_ngrams, table, room, &used)))
        step(o, lookup_keys_decode(table, used, g->n_ngrams, ngrams, lengths));
    test_free(table);
    test_free(ngrams);
    test_free(lengths);
}

static void legacy_file(outcome *o, const grouped *g) {
    size_t size = 20 * g->n_ngrams + 8 * g->n_pairs, end = 0;
    unsigned char *file = test_memory(size);
    lookup_legacy_info info;
    lookup_layout l;
    step(o, lookup_legacy_write(g->order, g->ngrams, g->lengths, g->entries, g->n_ngrams, file));
    step(o, lookup_legacy_boundary(file, size, 0, size / 2, &end));
    if (step(o, lookup_legacy_scan(file, size, &info)) && step(o, lookup_layout_for(&l, g->order, info.max_token, 1))) {
        uint64_t *records = test_memory(8 * g->n_pairs * (size_t)l.stride);
        step(o, lookup_legacy_records(file, size, &l, 1, 2, records, g->n_pairs));
        test_free(records);
    }
    test_free(file);
    /* the scan sorts where followers do not ascend */
    const int32_t unsorted[] = {1, 2, -1, -1, 3, 9, 1, 5, 1, 7, 1};
    step(o, lookup_legacy_scan(unsorted, sizeof unsorted, &info));
}

/* Everything that reads an open constmap, key recovery included. */
static void read_back(outcome *o, const lookup_static *cache, const grouped *g) {
    size_t words = (size_t)cache->n_entries / 64 + 1, n_found = 0, from = 0;
    uint64_t *marks = test_memory(8 * words), *found = test_memory(16 * 4096), covered = 0, offset = 0, n = 0;
    uint32_t *stamps = test_memory(4 * VOCAB), stamp = 0;
    memset(marks, 0, 8 * words);
    memset(stamps, 0, 4 * VOCAB);
    step(o, lookup_map_verify(&cache->map, cache->map_start));
    for (size_t i = 0; i < g->n_ngrams; i += 97)
        step(o, lookup_static_followers(cache, g->ngrams[2 * i], g->ngrams[2 * i + 1], &offset, &n));
    step(o, lookup_recover_pairs(cache, 0, 4, VOCAB, marks, found, 2048, &n_found, &covered));
    size_t n_known = n_found;
    uint64_t *known = test_copy(found, 16 * n_known);
    step(o, lookup_recover_step(cache, known, n_known, &from, marks, stamps, VOCAB, &stamp, found, 4096, &n_found, &covered));
    EXPECT(n_known > 0);
    test_free(known);
    test_free(marks);
    test_free(found);
    test_free(stamps);
}

/* ---- drafting: every source, alone and in a chain */

static const int32_t *traced;
static const uint64_t TRACE_AT[] = {20, 30}, TRACE_ENDS[] = {2, 4};

enum { CACHE, SIMPLE, MAP_K, MAP_K4V, MOD, SUFFIX, TRACE, KINDS };

static lookup_status make_source(int kind, const lookup_static *cache, const lookup_table *dynamic, lookup_source **source) {
    lookup_cache_params c;
    lookup_ngram_map_params m = {2, 4, 1, kind == MAP_K4V, 0};
    lookup_trace trace = {TRACE_AT, TRACE_ENDS, traced, 2};
    lookup_cache_defaults(&c);
    switch (kind) {
    case CACHE: return lookup_source_ngram_cache(&c, cache, dynamic, source);
    case SIMPLE: return lookup_source_ngram_simple(&(lookup_ngram_simple_params){2, 4}, source);
    case MOD: return lookup_source_ngram_mod(&(lookup_ngram_mod_params){2, 8, 1}, source);
    case SUFFIX: return lookup_source_ngram_suffix(&(lookup_ngram_suffix_params){4, 2, 16}, source);
    case TRACE: return lookup_source_trace(&trace, source);
    default: return lookup_source_ngram_map(&m, source);
    }
}

static void use_source(outcome *o, lookup_source *source, const int32_t *text) {
    int32_t draft[ROOM];
    size_t n_draft = 0;
    lookup_replay_stats *st = test_memory(sizeof *st);
    memset(st, 0, sizeof *st);
    for (int chunk = 0; chunk < 2; ++chunk) {
        step(o, lookup_replay_chunk(source, text + TEXT / 2, TEXT / 2, 10, 8, st));
        step(o, lookup_source_begin(source, text, 100)); /* goes on after a failure */
        step(o, lookup_source_draft(source, text, 120, draft, NULL, ROOM, &n_draft));
        if (n_draft > 0) step(o, lookup_source_accept(source, 1));
        step(o, lookup_source_truncate(source, text, 110));
        step(o, lookup_source_draft(source, text, 111, draft, NULL, ROOM, &n_draft));
    }
    test_free(st);
}

static lookup_table *make_dynamic(outcome *o, const int32_t *text, const grouped *g, bool *indexed) {
    lookup_cache_params p;
    lookup_table *t = NULL;
    lookup_cache_defaults(&p);
    if (!step(o, lookup_table_new(&t))) return NULL;
    step(o, lookup_table_update(t, text, TEXT / 4));
    lookup_table_end_stream(t);
    step(o, lookup_table_add(t, g->order, g->ngrams, g->lengths, g->entries, g->n_ngrams, g->n_pairs));
    *indexed = step(o, lookup_table_index(t, &p.dynamic));
    step(o, lookup_table_update(t, text + TEXT / 4, TEXT / 4)); /* the index grows too */
    return t;
}

static void every_source(outcome *o, const int32_t *text, const lookup_static *cache, const grouped *g) {
    bool indexed = false;
    lookup_table *dynamic = make_dynamic(o, text, g, &indexed);
    lookup_source *members[KINDS], *chain = NULL;
    size_t n = 0;
    for (int kind = 0; kind < KINDS; ++kind) {
        lookup_source *source = NULL;
        if (!step(o, make_source(kind, cache, indexed ? dynamic : NULL, &source))) continue;
        use_source(o, source, text);
        members[n++] = source;
    }
    if (n > 0 && step(o, lookup_source_chain(members, n, &chain))) use_source(o, chain, text);
    lookup_source_free(chain);
    while (n > 0) lookup_source_free(members[--n]);
    lookup_table_free(dynamic);
}

/* ---- text to ids */

/* Single letters and "ab"; literals that overlap; more symbols than are merged in place. */
static void text_to_ids(outcome *o) {
    static const uint64_t token_ends[] = {1, 2, 4}, merge_ends[] = {3}, literal_ends[] = {2, 5};
    static const int32_t literal_ids[] = {0, 1};
    static const uint8_t strip[] = {0, 0};
    lookup_tokens v = {(const uint8_t *)"abab", token_ends, NULL, (const uint8_t *)"a b", merge_ends, NULL, 3, 1,
                       lookup_tokenizer_rules("gpt-2"), 0, 0};
    lookup_tokenizer *t = NULL;
    lookup_literals *l = NULL;
    lookup_memo *memo = NULL;
    uint8_t text[200 + 64];
    int32_t ids[200 + 64];
    int64_t count;
    uint64_t end = 200;
    memset(text, 'a', sizeof text);
    memcpy(text, "xyyz", 4);
    bool made = step(o, lookup_tokenizer_new(&v, &t)) &&
                step(o, lookup_literals_new((const uint8_t *)"xyyyz", literal_ends, literal_ids, strip, 2, &l)) &&
                step(o, lookup_memo_new(2, &memo));
    if (made) step(o, lookup_tokenize(t, l, memo, text, &end, 1, ids, 200 + 64, &count));
    lookup_memo_free(memo);
    lookup_literals_free(l);
    lookup_tokenizer_free(t);
}

/* ---- the whole of it */

static void build_and_use(outcome *o, const int32_t *text) {
    grouped g;
    blob file = {NULL, 0};
    lookup_static cache;
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        if (!count(o, text, order, &g)) continue;
        legacy_file(o, &g);
        if (order != 2) {
            grouped_free(&g);
            continue;
        }
        key_table(o, &g);
        bool open = step(o, make_static(g.ngrams, g.lengths, g.entries, g.n_ngrams, g.n_pairs, &file)) &&
                    step(o, lookup_static_open(&cache, file.data, file.size));
        if (open) read_back(o, &cache, &g);
        every_source(o, text, open ? &cache : NULL, &g);
        grouped_free(&g);
        blob_free(&file);
    }
}

static outcome scenario(void) {
    outcome o = {LOOKUP_OK, false};
    int32_t *text = make_text(TEXT, VOCAB, 3);
    traced = text;
    sort_many(&o);
    build_and_use(&o, text);
    text_to_ids(&o);
    test_free(text);
    return o;
}

static void every_allocation_fails_once(void) {
    long k = 0, unneeded = 0; /* giving memory back may fail unnoticed */
    bool reached = true;
    while (reached && k < 10000) {
        until_failure = ++k;
        regrown = false;
        outcome o = scenario();
        reached = until_failure == 0;
        if (reached && regrown && o.first == LOOKUP_OK) ++unneeded;
        else EXPECT(o.first == (reached ? LOOKUP_E_MEMORY : LOOKUP_OK));
        EXPECT(!o.other);
        EXPECT(live == 0);
        EXPECT(leaks() == 0);
        until_failure = 0;
    }
    EXPECT(k > 100 && !reached && unneeded < k / 10);
    printf("oom: %ld allocations, each failed once" SEARCHED "\n", k - 1);
}

#if defined(__SANITIZE_ADDRESS__) || defined(LEAKS_SEEN)
static void *volatile lost;

/* That the search finds nothing means something only where it finds what is there. */
static void a_leak_would_be_seen(void) {
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        lost = malloc(100);
        lost = NULL;
        _exit(leaks() != 0 ? 7 : 0);
    }
    int status = 0;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
#endif

int main(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(LEAKS_SEEN)
    RUN(a_leak_would_be_seen);
#endif
    RUN(every_allocation_fails_once);
    return test_summary();
}
