/* Every prefix and every change of a single byte, to each of its 255 other values, of one small file
 * in each format that the core reads. Such a file is refused, or read inside its bounds; and what
 * passes every check of `verify` answers as the good file did. Meant for the sanitizers too: files
 * stand in memory of exactly their size. */
#include <stdio.h>
#include <string.h>

#include "support.h"

#define VOCAB 9
#define TOKENS 9
#define MOST 40 /* n-grams and pairs of the small files */

typedef enum { REFUSED, UNPROVED, VERIFIED } verdict;
typedef verdict (*reader)(const unsigned char *data, size_t size);

/* What the good files hold. */
static grouped good;
static uint64_t keys[MOST], entries_hash;
static const lookup_static *good_cache; /* for a key table, which is nothing without its map */

/* ---- every file of one kind */

typedef struct {
    unsigned long prefixes, changes, refused, unproved, harmless;
} tally;

static void enter(tally *t, verdict v) {
    t->refused += v == REFUSED;
    t->unproved += v == UNPROVED;
    t->harmless += v == VERIFIED;
}

static tally try_all(reader read, const blob *file) {
    tally t = {0};
    for (size_t size = 0; size < file->size; ++size) {
        unsigned char *cut = test_copy(file->data, size);
        enter(&t, read(cut, size));
        ++t.prefixes;
        test_free(cut);
    }
    unsigned char *changed = test_copy(file->data, file->size);
    for (size_t at = 0; at < file->size; ++at) {
        for (unsigned mask = 1; mask < 256; ++mask, ++t.changes) {
            changed[at] = (unsigned char)(file->data[at] ^ mask);
            enter(&t, read(changed, file->size));
        }
        changed[at] = file->data[at];
    }
    EXPECT(read(changed, file->size) == VERIFIED);
    test_free(changed);
    EXPECT(t.changes == 255 * file->size && t.prefixes == file->size);
    EXPECT(t.refused + t.unproved + t.harmless == t.changes + t.prefixes);
    return t;
}

static void report(const char *name, const tally *t) {
    printf("%s: %lu prefixes and %lu changes: open refuses %lu, verify %lu; %lu change no answer\n", name,
           t->prefixes, t->changes, t->refused, t->unproved, t->harmless);
}

/* ---- constmaps */

/* What `verify` asks of keys and entries, with the entries' hash as an annex has it. */
static bool proved(const lookup_static *cache, const uint64_t *found_keys, const uint32_t *lengths, size_t n) {
    uint64_t at[MOST], bad = 0, hash = lookup_xxh64(cache->entries, 8 * (size_t)cache->n_entries, 0);
    uint64_t marks[MOST / 64 + 1] = {0}, covered = 0;
    uint32_t spans[MOST];
    return hash == entries_hash && lookup_map_verify(&cache->map, cache->map_start) == LOOKUP_OK &&
           lookup_static_spans(cache, found_keys, n, at, spans) == LOOKUP_OK && memcmp(spans, lengths, 4 * n) == 0 &&
           cache->n_entries <= MOST && lookup_static_check_tiling(cache->n_entries, at, spans, n, marks, &covered) == LOOKUP_OK &&
           lookup_static_check_entries(cache, at, spans, n, VOCAB - 1, &bad) == LOOKUP_OK;
}

/* Every 2-gram of small ids; whether all answers are those of the good file. */
static bool answers_as_counted(const lookup_static *cache) {
    bool same = true;
    size_t next = 0, at = 0;
    for (int32_t a = 0; a < VOCAB; ++a)
        for (int32_t b = 0; b < VOCAB; ++b) {
            uint64_t offset = 0, n = 0;
            bool known = next < good.n_ngrams && good.ngrams[2 * next] == a && good.ngrams[2 * next + 1] == b;
            bool found = lookup_static_followers(cache, a, b, &offset, &n) == LOOKUP_OK;
            if (found) EXPECT(offset <= cache->n_entries && n <= cache->n_entries - offset);
            same &= found && n == (known ? good.lengths[next] : 0);
            if (known) {
                same = same && memcmp(cache->entries + 8 * offset, good.entries + 2 * at, 8 * (size_t)n) == 0;
                at += good.lengths[next++];
            }
        }
    return same;
}

static void draft_some(const lookup_static *cache) {
    static unsigned long opened;
    if (++opened % 512 != 0) return; /* a source is large */
    lookup_cache_params p;
    lookup_source *source = NULL;
    lookup_cache_defaults(&p);
    REQUIRE(lookup_source_ngram_cache(&p, cache, NULL, &source) == LOOKUP_OK);
    for (int32_t a = 0; a < VOCAB * VOCAB; ++a) {
        const int32_t text[] = {a / VOCAB, a % VOCAB};
        int32_t draft[8];
        size_t n = 0;
        EXPECT(lookup_source_begin(source, text, 2) == LOOKUP_OK);
        EXPECT(lookup_source_draft(source, text, 2, draft, NULL, 8, &n) == LOOKUP_OK && n <= 8);
    }
    lookup_source_free(source);
}

static verdict read_static(const unsigned char *data, size_t size) {
    lookup_static cache;
    if (lookup_static_open(&cache, data, size) != LOOKUP_OK) return REFUSED;
    bool same = answers_as_counted(&cache);
    draft_some(&cache);
    if (!proved(&cache, keys, good.lengths, good.n_ngrams)) return UNPROVED;
    EXPECT(same);
    return VERIFIED;
}

/* The header of a constmap (`n_keys` NULL) or constmap2, entries, map, then `tail`. */
static blob static_file(int32_t hash, const uint64_t *n_keys, const void *tail, size_t tail_size) {
    uint64_t *records = test_memory(16 * good.n_ngrams);
    blob map = {NULL, 0};
    EXPECT(lookup_static_records(good.ngrams, good.lengths, good.n_ngrams, 0, records) == LOOKUP_OK);
    EXPECT(make_map(records, good.n_ngrams, hash, false, &map) == LOOKUP_OK);
    size_t head = n_keys ? 32 : LOOKUP_STATIC_HEADER, keys_size = n_keys ? 16 * good.n_ngrams : 0, at = head;
    size_t size = head + 8 * good.n_pairs + map.size + tail_size + keys_size;
    blob file = {test_memory(size), size};
    memcpy(file.data, n_keys ? "ggngcmp2" : "ggngcmap", 8);
    put64(file.data + 8, good.n_pairs);
    put64(file.data + 16, map.size + tail_size);
    if (n_keys) put64(file.data + 24, *n_keys);
    memcpy(file.data + at, good.entries, 8 * good.n_pairs);
    memcpy(file.data + (at += 8 * good.n_pairs), map.data, map.size);
    if (tail_size > 0) memcpy(file.data + at + map.size, tail, tail_size);
    if (n_keys) memcpy(file.data + at + map.size + tail_size, records, keys_size);
    blob_free(&map);
    test_free(records);
    return file;
}

static void constmaps(void) {
    const uint64_t n_keys = good.n_ngrams;
    static const char ANNEX[] = "what stands behind the map";
    struct {
        const char *name;
        blob file;
    } cases[] = {
        {"constmap, xxh64", static_file(LOOKUP_HASH_XXH64, NULL, NULL, 0)},
        {"constmap, xxh3", static_file(LOOKUP_HASH_XXH3, NULL, NULL, 0)},
        {"constmap, annex", static_file(LOOKUP_HASH_XXH64, NULL, ANNEX, sizeof ANNEX)},
        {"constmap2", static_file(LOOKUP_HASH_XXH64, &n_keys, NULL, 0)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        tally t = try_all(read_static, &cases[i].file);
        report(cases[i].name, &t);
        EXPECT(t.refused > t.prefixes && t.unproved > t.changes / 2);
        blob_free(&cases[i].file);
    }
}

/* ---- the annex's key table */

static verdict read_keys(const unsigned char *data, size_t size) {
    int32_t ngrams[2 * MOST];
    uint32_t lengths[MOST];
    uint64_t found[MOST];
    size_t n = good.n_ngrams;
    if (lookup_keys_decode(data, size, n, ngrams, lengths) != LOOKUP_OK) return REFUSED;
    for (size_t i = 0; i < n; ++i) found[i] = (uint32_t)ngrams[2 * i] | (uint64_t)(uint32_t)ngrams[2 * i + 1] << 32;
    if (!proved(good_cache, found, lengths, n)) return UNPROVED;
    EXPECT(memcmp(found, keys, 8 * n) == 0 && memcmp(lengths, good.lengths, 4 * n) == 0);
    return VERIFIED;
}

static void key_table(void) {
    blob file = {test_memory(25 * MOST), 0}, cache_file = static_file(LOOKUP_HASH_XXH64, NULL, NULL, 0);
    lookup_static cache;
    REQUIRE(lookup_static_open(&cache, cache_file.data, cache_file.size) == LOOKUP_OK);
    good_cache = &cache;
    REQUIRE(lookup_keys_encode(good.ngrams, good.lengths, good.n_ngrams, file.data, 25 * MOST, &file.size) == LOOKUP_OK);
    tally t = try_all(read_keys, &file);
    report("key table", &t);
    EXPECT(t.harmless == 0);
    blob_free(&file);
    blob_free(&cache_file);
}

/* ---- legacy */

static uint64_t legacy_hash; /* as a sidecar keeps it */

static verdict read_legacy(const unsigned char *data, size_t size) {
    lookup_legacy_info info;
    if (lookup_legacy_scan(data, size, &info) != LOOKUP_OK) return REFUSED;
    for (int32_t order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        lookup_layout l;
        EXPECT(lookup_layout_for(&l, order, info.max_token > 0 ? info.max_token : 1, 1) == LOOKUP_OK);
        uint64_t *records = test_memory(8 * (size_t)info.n_pairs[order - 1] * (size_t)l.stride);
        EXPECT(lookup_legacy_records(data, size, &l, 1, 1, records, (size_t)info.n_pairs[order - 1]) == LOOKUP_OK);
        test_free(records);
    }
    return lookup_xxh64(data, size, 0) == legacy_hash ? VERIFIED : UNPROVED;
}

static void legacy(void) {
    int32_t *text = make_text(TOKENS, VOCAB, 7);
    blob file = {NULL, 0};
    REQUIRE(make_legacy(text, TOKENS, VOCAB, &file) == LOOKUP_OK);
    legacy_hash = lookup_xxh64(file.data, file.size, 0);
    tally t = try_all(read_legacy, &file);
    report("legacy", &t);
    EXPECT(t.harmless == 0 && t.refused > t.prefixes);
    blob_free(&file);
    test_free(text);
}

int main(void) {
    int32_t *text = make_text(TOKENS, VOCAB, 7);
    if (make_grouped(text, TOKENS, 2, VOCAB - 1, &good) != LOOKUP_OK || good.n_pairs > MOST) return 2;
    for (size_t i = 0; i < good.n_ngrams; ++i)
        keys[i] = (uint32_t)good.ngrams[2 * i] | (uint64_t)(uint32_t)good.ngrams[2 * i + 1] << 32;
    entries_hash = lookup_xxh64(good.entries, 8 * good.n_pairs, 0);
    RUN(constmaps);
    RUN(key_table);
    RUN(legacy);
    grouped_free(&good);
    test_free(text);
    return test_summary();
}
