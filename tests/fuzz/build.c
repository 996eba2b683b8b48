/* From tokens to a cache and back: packing, sorting, grouping, merging, scaling, pruning, the map and
 * key recovery, each against counting by qsort. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST 300 /* tokens */
#define PARTITIONS (1u << LOOKUP_PARTITION_BITS)
#define WIDEST (LOOKUP_MAX_ORDER + 1)

/* A follower behind its n-gram, counted. */
typedef struct {
    int32_t tokens[WIDEST]; /* order+1 of them, then zeros */
    int64_t count;
} window;

typedef struct {
    lookup_layout raw, counted;
    int32_t order, max_token, *tokens;
    int64_t ends[8];
    size_t n, n_ends, skip, n_windows, n_model;
    window *model;   /* ascending, every window once */
    uint64_t *sums;  /* the same as counted records */
} job;

static int compare(const void *a, const void *b) {
    const window *x = a, *y = b;
    for (int k = 0; k < WIDEST; ++k)
        if (x->tokens[k] != y->tokens[k]) return x->tokens[k] < y->tokens[k] ? -1 : 1;
    return 0;
}

static size_t words_of(const lookup_layout *l) { return (size_t)l->key_words; }

/* Small ids, ids of many widths, and both ends of the range. */
static void take_job(input *in, job *j) {
    static const int32_t LARGEST[] = {0, 1, 11, 255, 256, 4095, 65535, 1 << 20, (1 << 21) - 1, 1 << 24, INT32_MAX - 1, INT32_MAX};
    uint32_t b = take(in);
    memset(j, 0, sizeof *j);
    j->order = 1 + (int32_t)(b & 3);
    j->max_token = LARGEST[(b >> 2) % (sizeof LARGEST / sizeof *LARGEST)];
    j->n_ends = 1 + take(in) % 7;
    j->n = left(in) < LONGEST ? left(in) : LONGEST;
    j->skip = take(in) % 16;
    if (j->skip > j->n) j->skip = j->n;
    size_t end = 0;
    for (size_t d = 0; d + 1 < j->n_ends; ++d) {
        end += take(in) % 64;
        j->ends[d] = (int64_t)(end = end < j->n ? end : j->n);
    }
    j->ends[j->n_ends - 1] = (int64_t)j->n;
    j->tokens = test_memory(4 * j->n);
    for (size_t i = 0; i < j->n; ++i) {
        uint32_t t = take(in);
        if (j->max_token < 256) j->tokens[i] = (int32_t)t % (j->max_token + 1);
        else j->tokens[i] = t < 128 ? (int32_t)t : j->max_token - (int32_t)(255 - t);
    }
    MUST(lookup_layout_for(&j->raw, j->order, j->max_token, 0) == LOOKUP_OK);
    MUST(lookup_layout_for(&j->counted, j->order, j->max_token, 1) == LOOKUP_OK);
}

static void count_model(job *j) {
    size_t n = 0, width = (size_t)j->order + 1, start = 0;
    j->model = test_memory(sizeof(window) * j->n);
    for (size_t d = 0; d < j->n_ends; start = (size_t)j->ends[d++])
        for (size_t i = start + width - 1; i < (size_t)j->ends[d]; ++i) {
            if (i < j->skip) continue;
            memset(&j->model[n], 0, sizeof(window));
            memcpy(j->model[n].tokens, j->tokens + i + 1 - width, 4 * width);
            j->model[n++].count = 1;
        }
    j->n_windows = n;
    qsort(j->model, n, sizeof(window), compare);
    for (size_t i = 0; i < n; ++i) {
        if (j->n_model > 0 && compare(&j->model[j->n_model - 1], &j->model[i]) == 0) j->model[j->n_model - 1].count++;
        else j->model[j->n_model++] = j->model[i];
    }
}

/* Packs, gathers the partitions in two halves, sorts each: together they ascend. */
static uint64_t *sorted_keys(const job *j, size_t cut) {
    size_t words = words_of(&j->raw);
    MUST(lookup_count_windows(j->ends, j->n_ends, j->order, j->skip) == j->n_windows);
    uint64_t *packed = test_memory(8 * words * j->n_windows), *starts = test_memory(8 * (PARTITIONS + 1));
    uint64_t *keys = test_memory(8 * words * j->n_windows), *scratch = test_memory(8 * words * j->n_windows);
    MUST(lookup_pack(&j->raw, j->tokens, j->n, j->ends, j->n_ends, j->skip, packed, starts) == LOOKUP_OK);
    MUST(starts[0] == 0 && starts[PARTITIONS] == j->n_windows);
    const uint64_t *batch = packed, *places = starts;
    size_t first = (size_t)starts[cut];
    MUST(lookup_gather(&batch, &places, 1, 0, cut, j->raw.key_words, keys) == LOOKUP_OK);
    MUST(lookup_gather(&batch, &places, 1, cut, PARTITIONS, j->raw.key_words, keys + words * first) == LOOKUP_OK);
    MUST(lookup_sort(&j->raw, keys, scratch, first) == LOOKUP_OK);
    MUST(lookup_sort(&j->raw, keys + words * first, scratch + words * first, j->n_windows - first) == LOOKUP_OK);
    test_free(packed);
    test_free(starts);
    test_free(scratch);
    return keys;
}

/* Sums of both halves, merged, are the sums of all. */
static void check_sums(job *j, const uint64_t *keys, size_t cut) {
    size_t words = words_of(&j->raw), stride = words + 1, n = 0, n_a = 0, n_b = 0, n_merged = 0;
    j->sums = test_memory(8 * stride * j->n_windows);
    uint64_t *a = test_memory(8 * stride * cut), *b = test_memory(8 * stride * (j->n_windows - cut)), *merged = test_memory(8 * stride * j->n_windows);
    MUST(lookup_aggregate(&j->raw, keys, j->n_windows, j->sums, &n) == LOOKUP_OK && n == j->n_model);
    MUST(lookup_aggregate(&j->raw, keys, cut, a, &n_a) == LOOKUP_OK);
    MUST(lookup_aggregate(&j->raw, keys + words * cut, j->n_windows - cut, b, &n_b) == LOOKUP_OK);
    MUST(lookup_merge_two(&j->counted, a, n_a, b, n_b, merged, &n_merged) == LOOKUP_OK);
    MUST(n_merged == n && memcmp(merged, j->sums, 8 * stride * n) == 0);
    for (size_t i = 0; i < n; i += 1 + n / 8) MUST(lookup_upper_bound(&j->counted, j->sums, n, j->sums + stride * i) == i + 1);
    test_free(a);
    test_free(b);
    test_free(merged);
}

typedef struct {
    int32_t *ngrams, *entries;
    uint32_t *lengths;
    size_t n_ngrams, n_pairs;
} groups;

static groups groups_of(const job *j) {
    groups g = {.ngrams = test_memory(4 * j->n_windows * (size_t)j->order), .entries = test_memory(8 * j->n_windows),
                .lengths = test_memory(4 * j->n_windows)};
    return g;
}

static void groups_free(groups *g) {
    test_free(g->ngrams);
    test_free(g->entries);
    test_free(g->lengths);
}

/* In two pieces: what the first call leaves, the second takes up. */
static groups group(const job *j, const uint64_t *keys, size_t cut, const lookup_prune *prune) {
    groups g = groups_of(j);
    size_t used = 0, n_ngrams = 0, n_pairs = 0, rest = 0;
    MUST(lookup_group(&j->raw, keys, cut, 0, prune, g.ngrams, g.lengths, g.entries, &used, &g.n_ngrams, &g.n_pairs) == LOOKUP_OK && used <= cut);
    MUST(lookup_group(&j->raw, keys + words_of(&j->raw) * used, j->n_windows - used, 1, prune, g.ngrams + (size_t)j->order * g.n_ngrams,
                      g.lengths + g.n_ngrams, g.entries + 2 * g.n_pairs, &rest, &n_ngrams, &n_pairs) == LOOKUP_OK);
    MUST(used + rest == j->n_windows);
    g.n_ngrams += n_ngrams;
    g.n_pairs += n_pairs;
    return g;
}

static bool same_ngram(const job *j, const window *a, const window *b) { return memcmp(a->tokens, b->tokens, 4 * (size_t)j->order) == 0; }

static int32_t follower(const job *j, const window *w) { return w->tokens[j->order]; }

/* Does the model keep this follower of the n-gram [from, to)? */
static bool kept(const job *j, const lookup_prune *prune, size_t from, size_t to, size_t at) {
    const window *w = &j->model[at];
    size_t better = 0;
    for (size_t i = from; i < to; ++i)
        better += j->model[i].count > w->count || (j->model[i].count == w->count && follower(j, &j->model[i]) < follower(j, w));
    return w->count >= prune->min_count && (prune->top_k == 0 || better < (size_t)prune->top_k);
}

static void check_groups(const job *j, const groups *g, const lookup_prune *prune) {
    size_t ngram = 0, pair = 0;
    for (size_t from = 0, to; from < j->n_model; from = to) {
        uint32_t length = 0;
        for (to = from; to < j->n_model && same_ngram(j, &j->model[from], &j->model[to]);) ++to;
        for (size_t i = from; i < to; ++i) {
            if (!kept(j, prune, from, to, i)) continue;
            MUST(pair < g->n_pairs && g->entries[2 * pair] == follower(j, &j->model[i]));
            MUST(g->entries[2 * pair + 1] == j->model[i].count);
            ++length;
            ++pair;
        }
        if (length == 0) continue;
        MUST(ngram < g->n_ngrams && g->lengths[ngram] == length);
        MUST(memcmp(g->ngrams + (size_t)j->order * ngram++, j->model[from].tokens, 4 * (size_t)j->order) == 0);
    }
    MUST(ngram == g->n_ngrams && pair == g->n_pairs);
}

/* Records from the groups are the sums again, or scaled, rounded half up. */
static void check_expand(const job *j, const groups *g, int64_t num, int64_t den) {
    size_t words = words_of(&j->raw), stride = words + 1;
    uint64_t *records = test_memory(8 * stride * g->n_pairs);
    MUST(lookup_expand(&j->counted, g->ngrams, g->lengths, g->entries, g->n_ngrams, g->n_pairs, num, den, records) == LOOKUP_OK);
    MUST(g->n_pairs == j->n_model);
    for (size_t i = 0; i < j->n_model; ++i) {
        uint64_t want = (2 * (uint64_t)j->model[i].count * (uint64_t)num + (uint64_t)den) / (2 * (uint64_t)den);
        want = want < 1 ? 1 : want > INT32_MAX ? INT32_MAX : want;
        MUST(memcmp(records + stride * i, j->sums + stride * i, 8 * words) == 0);
        MUST(records[stride * i + words] == want);
    }
    test_free(records);
}

/* A table that reads the documents one after the other counts the same. */
static void check_table(const job *j) {
    size_t stride = words_of(&j->raw) + 1;
    lookup_table *table = NULL;
    lookup_table_info info;
    MUST(lookup_table_new(&table) == LOOKUP_OK);
    for (size_t d = 0, start = 0; d < j->n_ends; start = (size_t)j->ends[d++]) {
        MUST(lookup_table_update(table, j->tokens + start, (size_t)j->ends[d] - start) == LOOKUP_OK);
        lookup_table_end_stream(table);
    }
    MUST(lookup_table_get_info(table, &info) == LOOKUP_OK && info.n_pairs[j->order - 1] == j->n_model);
    uint64_t *records = test_memory(8 * stride * j->n_model), *scratch = test_memory(8 * stride * j->n_model);
    MUST(lookup_table_records(table, &j->counted, records) == LOOKUP_OK);
    MUST(lookup_sort(&j->counted, records, scratch, j->n_model) == LOOKUP_OK);
    MUST(memcmp(records, j->sums, 8 * stride * j->n_model) == 0);
    test_free(records);
    test_free(scratch);
    lookup_table_free(table);
}

/* The walk from one known key never finds one twice; all pairs of ids find all. */
static void check_recovery(const job *j, const lookup_static *cache, const groups *g, uint64_t *offsets) {
    size_t words = g->n_pairs / 64 + 1, vocab = (size_t)j->max_token + 1, room = vocab * vocab, n_found = 0, from = 0;
    uint64_t *marks = test_memory(8 * words), *found = test_memory(16 * room), covered = 0, more = 0;
    uint32_t *stamps = test_memory(4 * vocab), stamp = 0;
    uint64_t known[2] = {(uint32_t)g->ngrams[0] | (uint64_t)(uint32_t)g->ngrams[1] << 32, g->lengths[0]};
    memset(marks, 0, 8 * words);
    memset(stamps, 0, 4 * vocab);
    MUST(lookup_recover_step(cache, known, 1, &from, marks, stamps, vocab, &stamp, found, room, &n_found, &covered) == LOOKUP_OK);
    MUST(from == 1 && n_found <= g->n_ngrams && covered <= g->n_pairs);
    size_t walked = n_found;
    MUST(lookup_recover_pairs(cache, 0, (int32_t)vocab, (int32_t)vocab, marks, found, room, &n_found, &more) == LOOKUP_OK);
    MUST(walked + n_found == g->n_ngrams && covered + more == g->n_pairs);
    memset(marks, 0, 8 * words);
    MUST(lookup_static_check_tiling(g->n_pairs, offsets, g->lengths, g->n_ngrams, marks, &covered) == LOOKUP_OK && covered == g->n_pairs);
    test_free(marks);
    test_free(found);
    test_free(stamps);
}

/* A cache file holds every n-gram's followers where they were put, and no other n-gram. */
static void check_static(const job *j, const groups *g) {
    blob file;
    lookup_static cache;
    MUST(make_static(g->ngrams, g->lengths, g->entries, g->n_ngrams, g->n_pairs, &file) == LOOKUP_OK);
    MUST(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    MUST(lookup_map_verify(&cache.map, cache.map_start) == LOOKUP_OK);
    uint64_t at = 0, bad, *offsets = test_memory(8 * g->n_ngrams);
    for (size_t i = 0; i < g->n_ngrams; at += g->lengths[i++]) {
        uint64_t n = 0;
        MUST(lookup_static_followers(&cache, g->ngrams[2 * i], g->ngrams[2 * i + 1], &offsets[i], &n) == LOOKUP_OK);
        MUST(offsets[i] == at && n == g->lengths[i]);
        MUST(lookup_static_followers(&cache, g->ngrams[2 * i], -1 - g->ngrams[2 * i + 1], &bad, &n) == LOOKUP_OK && n == 0);
    }
    MUST(memcmp(cache.entries, g->entries, 8 * g->n_pairs) == 0 && at == cache.n_entries);
    MUST(lookup_static_check_entries(&cache, offsets, g->lengths, g->n_ngrams, j->max_token, &bad) == LOOKUP_OK);
    if (j->max_token < 256 && g->n_ngrams > 0) check_recovery(j, &cache, g, offsets);
    test_free(offsets);
    blob_free(&file);
}

static int compare_words(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* A map of any keys and values answers for each of them; the halves' order changes no byte. */
static void check_map(input *in, int32_t hash) {
    size_t n = left(in) / 9;
    uint64_t *records = test_memory(16 * n);
    bool twice = false;
    for (size_t i = 0; i < n; ++i) {
        records[2 * i] = take(in) < 128 ? take_word(in) : take(in); /* small keys may stand twice */
        records[2 * i + 1] = ~records[2 * i] * 0x9E3779B97F4A7C15ull;
    }
    qsort(records, n, 16, compare_words);
    for (size_t i = 1; i < n; ++i) twice |= records[2 * i] == records[2 * i - 2];
    blob map = {NULL, 0}, other = {NULL, 0};
    lookup_status status = make_map(records, n, hash, false, &map);
    MUST(status == (twice ? LOOKUP_E_DUPLICATE : LOOKUP_OK));
    MUST(make_map(records, n, hash, true, &other) == status);
    if (!twice) {
        lookup_map view;
        MUST(map.size == other.size && memcmp(map.data, other.data, map.size) == 0);
        MUST(lookup_map_open(&view, map.data, map.size) == LOOKUP_OK && lookup_map_verify(&view, map.data) == LOOKUP_OK);
        for (size_t i = 0; i < n; ++i) {
            uint64_t value;
            uint8_t found;
            MUST(lookup_map_get_many(&view, records + 2 * i, 1, &value, &found) == LOOKUP_OK);
            MUST(found && value == records[2 * i + 1]);
        }
    }
    blob_free(&map);
    blob_free(&other);
    test_free(records);
}

/* More records than the sort handles in one piece; small keys are many, so that pieces of every size
 * come up. */
static void check_large_sort(const job *j, uint64_t seed) {
    size_t words = words_of(&j->raw), n = 34000;
    rng r = {seed};
    int bits = j->raw.bits * (j->order + 1);
    uint64_t *records = test_memory(8 * words * n), *scratch = test_memory(8 * words * n), before = 0, after = 0;
    for (size_t i = 0; i < words * n; ++i) {
        bool top = i % words == 0 && bits % 64 != 0;
        records[i] = rng_next(&r) & (top ? (1ull << bits % 64) - 1 : ~0ull);
        if (i % words == 0) records[i] >>= rng_below(&r, 64);
        before += records[i];
    }
    MUST(lookup_sort(&j->raw, records, scratch, n) == LOOKUP_OK);
    for (size_t i = 0; i < words * n; ++i) after += records[i];
    MUST(before == after);
    for (size_t i = 1; i < n; ++i) {
        size_t w = 0;
        while (w + 1 < words && records[words * i + w] == records[words * (i - 1) + w]) ++w;
        MUST(records[words * i + w] >= records[words * (i - 1) + w]);
    }
    test_free(records);
    test_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = input_of(data, size);
    uint32_t how = take(&in), cut = take(&in);
    if (how & 1) {
        check_map(&in, how & 2 ? LOOKUP_HASH_XXH3 : LOOKUP_HASH_XXH64);
        return 0;
    }
    lookup_prune all = {1, 0}, some = {1 + (int32_t)(how >> 1 & 3), (int32_t)(how >> 3 & 3)};
    int64_t num = 1 + take(&in), den = 1 + take(&in);
    job j;
    take_job(&in, &j);
    count_model(&j);
    uint64_t *keys = sorted_keys(&j, cut * PARTITIONS / 255);
    size_t middle = cut * j.n_windows / 255;
    check_sums(&j, keys, middle);
    groups g = group(&j, keys, middle, &all), pruned = group(&j, keys, middle, &some);
    check_groups(&j, &g, &all);
    check_groups(&j, &pruned, &some);
    check_expand(&j, &g, num, den);
    check_expand(&j, &g, INT32_MAX, den);
    if (j.skip == 0) check_table(&j);
    if (j.order == 2) check_static(&j, &g);
    if (how >= 248) check_large_sort(&j, cut);
    groups_free(&g);
    groups_free(&pruned);
    test_free(keys);
    test_free(j.sums);
    test_free(j.model);
    test_free(j.tokens);
    return 0;
}
