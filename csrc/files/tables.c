/* Between files and tables: a cache's n-grams into a table, a table into a legacy file, a legacy file's
 * 2-grams into a constmap. */
#include "file.h"

#include "../core/layout.h"
#include "../core/static.h"
#include "../core/table.h"

/* ---- a file into a table */

lookup_status lookup_add_legacy(const mapping *bytes, lookup_table *table) {
    const unsigned char *p = bytes->data;
    int32_t ngram[4];
    for (size_t at = 0; at < bytes->size;) {
        int32_t order = 0;
        CHECK(bytes->size - at >= 20, LOOKUP_E_TRUNCATED);
        uint32_t n = load32(p + at + 16);
        CHECK((bytes->size - at - 20) / 8 >= n, LOOKUP_E_TRUNCATED);
        while (order < 4 && load_i32(p + at + 4 * order) >= 0) {
            ngram[order] = load_i32(p + at + 4 * order);
            ++order;
        }
        /* Records are multiples of 4 bytes in a mapping that starts on a page. */
        const int32_t *entries = (const int32_t *)(const void *)(p + at + 20);
        TRY(lookup_table_add(table, order, ngram, &n, entries, 1, n));
        at += 20 + 8 * (size_t)n;
    }
    return LOOKUP_OK;
}

static lookup_status add_key(const lookup_static *cache, lookup_table *table, int32_t t0, int32_t t1) {
    int32_t ngram[2] = {t0, t1}, entry[2];
    const uint32_t one = 1;
    uint64_t offset = 0, n = 0;
    TRY(lookup_static_followers(cache, t0, t1, &offset, &n));
    for (uint64_t i = offset; i < offset + n; ++i) {
        entry[0] = entry_token(cache->entries, i);
        entry[1] = entry_count(cache->entries, i);
        TRY(lookup_table_add(table, 2, ngram, &one, entry, 1, 1));
    }
    return LOOKUP_OK;
}

static lookup_status add_listed(const lookup_static *cache, lookup_table *table) {
    for (uint64_t k = 0; k < cache->n_keys; ++k) {
        const unsigned char *record = cache->keys + 16 * k;
        TRY(add_key(cache, table, load_i32(record), load_i32(record + 4)));
    }
    return LOOKUP_OK;
}

/* A walk over a map without keys (../build/recover.c), from one first token after the other. */
typedef struct {
    const lookup_static *cache;
    uint64_t *marks, *known, *found;
    uint32_t *stamps, stamp;
    uint32_t *often; /* how often each id follows */
    int32_t n_vocab;
    size_t n_known, done, capacity, n_found;
    uint64_t covered;
} walk;

#define MOST_IDS (1 << 24) /* no vocabulary comes near it */
#define STARTS 64

static lookup_status take_found(walk *w, size_t n) {
    if (n > w->capacity - w->n_known) {
        size_t capacity = 2 * w->capacity + n;
        uint64_t *known = lookup_realloc(w->known, capacity, 2 * sizeof *known);
        CHECK(known != NULL, LOOKUP_E_MEMORY);
        w->known = known;
        w->capacity = capacity;
    }
    memcpy(w->known + 2 * w->n_known, w->found, 16 * n);
    w->n_known += n;
    return LOOKUP_OK;
}

static lookup_status walk_on(walk *w) {
    while (w->done < w->n_known && w->covered < w->cache->n_entries) {
        size_t n = 0, from = 0, batch = w->n_known - w->done;
        uint64_t covered = 0;
        TRY(lookup_recover_step(w->cache, w->known + 2 * w->done, batch, &from, w->marks, w->stamps, (size_t)w->n_vocab, &w->stamp,
                                w->found, w->n_found, &n, &covered));
        CHECK(from > 0, LOOKUP_E_KEYS);
        w->done += from;
        w->covered += covered;
        TRY(take_found(w, n));
    }
    return LOOKUP_OK;
}

/* The most frequent follower that has not been a start; it is none from now on. */
static int32_t next_start(walk *w) {
    int32_t best = 0;
    for (int32_t id = 1; id < w->n_vocab; ++id)
        if (w->often[id] > w->often[best]) best = id;
    bool any = w->often[best] > 0;
    w->often[best] = 0;
    return any ? best : -1;
}

static lookup_status walk_all(walk *w) {
    for (int k = 0; k < STARTS && w->covered < w->cache->n_entries; ++k) {
        size_t n = 0;
        uint64_t covered = 0;
        int32_t first = next_start(w);
        if (first < 0) break;
        TRY(lookup_recover_pairs(w->cache, first, 1, w->n_vocab, w->marks, w->found, w->n_found, &n, &covered));
        w->covered += covered;
        TRY(take_found(w, n));
        TRY(walk_on(w));
    }
    return w->covered == w->cache->n_entries ? LOOKUP_OK : LOOKUP_E_KEYS;
}

static lookup_status prepare(walk *w) {
    const lookup_static *c = w->cache;
    int32_t top = 0;
    for (uint64_t i = 0; i < c->n_entries; ++i) {
        int32_t token = entry_token(c->entries, i);
        top = token > top ? token : top;
    }
    CHECK(top < MOST_IDS, LOOKUP_E_KEYS);
    w->n_vocab = top + 1;
    uint64_t longest = c->n_entries < (uint64_t)w->n_vocab ? c->n_entries : (uint64_t)w->n_vocab;
    w->n_found = longest < 1 << 16 ? 1 << 17 : 2 * (size_t)longest + 64;
    w->marks = lookup_alloc((size_t)(c->n_entries / 64 + 1), sizeof *w->marks);
    w->found = lookup_alloc(w->n_found, 2 * sizeof *w->found);
    w->stamps = lookup_alloc((size_t)w->n_vocab, sizeof *w->stamps);
    w->often = lookup_alloc((size_t)w->n_vocab, sizeof *w->often);
    CHECK(w->marks && w->found && w->stamps && w->often, LOOKUP_E_MEMORY);
    for (uint64_t i = 0; i < c->n_entries; ++i) {
        int32_t token = entry_token(c->entries, i);
        if (token >= 0 && w->often[token] < UINT32_MAX) w->often[token]++;
    }
    return LOOKUP_OK;
}

lookup_status lookup_add_static(const lookup_static *cache, lookup_table *table) {
    if (cache->keys != NULL) return add_listed(cache, table);
    walk w = {.cache = cache};
    lookup_status status = prepare(&w);
    if (status == LOOKUP_OK && cache->n_entries > 0) status = walk_all(&w);
    for (size_t k = 0; k < w.n_known && status == LOOKUP_OK; ++k) {
        uint64_t key = w.known[2 * k];
        status = add_key(cache, table, (int32_t)(uint32_t)key, (int32_t)(uint32_t)(key >> 32));
    }
    lookup_free(w.marks);
    lookup_free(w.known);
    lookup_free(w.found);
    lookup_free(w.stamps);
    lookup_free(w.often);
    return status;
}

/* ---- sorted and grouped n-grams of one order */

typedef struct {
    uint64_t *records, *scratch;
    int32_t *ngrams, *entries;
    uint32_t *lengths;
    size_t n, n_ngrams, n_pairs;
} grouped;

static void drop(grouped *g) {
    lookup_free(g->records);
    lookup_free(g->scratch);
    lookup_free(g->ngrams);
    lookup_free(g->entries);
    lookup_free(g->lengths);
    *g = (grouped){0};
}

static lookup_status reserve(grouped *g, const lookup_layout *layout, uint64_t n) {
    CHECK(n <= SIZE_MAX / 64, LOOKUP_E_LIMIT);
    g->n = (size_t)n;
    g->records = lookup_alloc(g->n, (size_t)layout->stride * sizeof *g->records);
    g->scratch = lookup_alloc(g->n, (size_t)layout->stride * sizeof *g->scratch);
    g->ngrams = lookup_alloc(g->n, (size_t)layout->order * sizeof *g->ngrams);
    g->entries = lookup_alloc(g->n, 2 * sizeof *g->entries);
    g->lengths = lookup_alloc(g->n, sizeof *g->lengths);
    return g->records && g->scratch && g->ngrams && g->entries && g->lengths ? LOOKUP_OK : LOOKUP_E_MEMORY;
}

static lookup_status sort_and_group(grouped *g, const lookup_layout *layout) {
    const lookup_prune all = {.min_count = 1};
    size_t used = 0;
    TRY(lookup_sort(layout, g->records, g->scratch, g->n));
    return lookup_group(layout, g->records, g->n, 1, &all, g->ngrams, g->lengths, g->entries, &used, &g->n_ngrams, &g->n_pairs);
}

/* ---- a table into a legacy file */

static lookup_status group_table(const lookup_table *table, int32_t order, uint64_t n_pairs, int32_t max_token, grouped *g) {
    lookup_layout layout;
    TRY(lookup_layout_for(&layout, order, max_token, 1));
    TRY(reserve(g, &layout, n_pairs));
    TRY(lookup_table_records(table, &layout, g->records));
    return sort_and_group(g, &layout);
}

static int32_t largest_token(const lookup_table *t) {
    uint32_t top = 0;
    for (uint32_t id = 1; id < t->n_nodes; ++id) top = t->nodes[id].token > top ? t->nodes[id].token : top;
    return (int32_t)top;
}

static lookup_status append_group(const grouped *g, int32_t order, void **bytes, size_t *size) {
    size_t more = 20 * g->n_ngrams + 8 * g->n_pairs;
    unsigned char *out = lookup_realloc(*bytes, *size + more, 1);
    CHECK(out != NULL, LOOKUP_E_MEMORY);
    *bytes = out;
    TRY(lookup_legacy_write(order, g->ngrams, g->lengths, g->entries, g->n_ngrams, out + *size));
    *size += more;
    return LOOKUP_OK;
}

lookup_status lookup_table_bytes(const lookup_table *table, void **bytes, size_t *size, lookup_file_info *info) {
    lookup_table_info counts;
    *bytes = NULL;
    *size = 0;
    info->n_ngrams = info->n_pairs = 0;
    lookup_status status = lookup_table_get_info(table, &counts);
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER && status == LOOKUP_OK; ++order) {
        grouped g = {0};
        if (counts.n_pairs[order - 1] == 0) continue;
        status = group_table(table, order, counts.n_pairs[order - 1], largest_token(table), &g);
        if (status == LOOKUP_OK) status = append_group(&g, order, bytes, size);
        info->n_ngrams += g.n_ngrams;
        info->n_pairs += g.n_pairs;
        drop(&g);
    }
    if (status != LOOKUP_OK) {
        lookup_free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* ---- a legacy file's 2-grams into a constmap */

static lookup_status try_plan(const lookup_map_plan *plan, const uint64_t *records, unsigned char *out) {
    void *scratch = lookup_alloc((size_t)plan->scratch_bytes + 1, 1);
    CHECK(scratch != NULL, LOOKUP_E_MEMORY);
    lookup_status status = LOOKUP_OK;
    for (int phase = 0; phase < LOOKUP_MAP_PHASES && status == LOOKUP_OK; ++phase)
        for (int half = 0; half < 2 && status == LOOKUP_OK; ++half)
            status = lookup_map_phase(plan, phase, half, records, out, scratch);
    lookup_free(scratch);
    return status;
}

/* Tries seeds until one works; the file is made anew for each, as its size may differ. */
static lookup_status write_map(const grouped *g, const uint64_t *records, void **built, size_t *size) {
    lookup_map_plan plan;
    size_t head = LOOKUP_STATIC_HEADER + 8 * g->n_pairs;
    lookup_status status = lookup_map_plan_first(&plan, g->n_ngrams, LOOKUP_HASH_XXH64);
    while (status == LOOKUP_OK) {
        unsigned char *out = lookup_alloc(head + (size_t)plan.map_bytes, 1);
        CHECK(out != NULL, LOOKUP_E_MEMORY);
        status = try_plan(&plan, records, out + head);
        if (status == LOOKUP_OK) {
            memcpy(out, "ggngcmap", 8);
            store64(out + 8, g->n_pairs);
            store64(out + 16, plan.map_bytes);
            if (g->n_pairs > 0) memcpy(out + LOOKUP_STATIC_HEADER, g->entries, 8 * g->n_pairs);
            *built = out;
            *size = head + (size_t)plan.map_bytes;
            return LOOKUP_OK;
        }
        lookup_free(out);
        if (status == LOOKUP_E_CONSTRUCTION) status = lookup_map_plan_next(&plan);
    }
    return status;
}

static lookup_status build_static(const mapping *bytes, const lookup_legacy_info *info, grouped *g, void **built, size_t *size) {
    lookup_layout layout;
    TRY(lookup_layout_for(&layout, 2, info->max_token > 0 ? info->max_token : 0, 1));
    TRY(reserve(g, &layout, info->n_pairs[1]));
    TRY(lookup_legacy_records(bytes->data, bytes->size, &layout, 1, 1, g->records, g->n));
    TRY(sort_and_group(g, &layout));
    uint64_t *records = lookup_alloc(g->n_ngrams, 2 * sizeof *records);
    CHECK(records != NULL, LOOKUP_E_MEMORY);
    lookup_status status = lookup_static_records(g->ngrams, g->lengths, g->n_ngrams, 0, records);
    if (status == LOOKUP_OK) status = write_map(g, records, built, size);
    lookup_free(records);
    return status;
}

lookup_status lookup_build_static(const mapping *bytes, const lookup_legacy_info *info, void **built, size_t *size) {
    grouped g = {0};
    lookup_status status = build_static(bytes, info, &g, built, size);
    drop(&g);
    return status;
}
