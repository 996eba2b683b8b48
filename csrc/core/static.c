/* Static cache files: a buffer opened in place, spans, and the checks behind `verify`. */
#include "map.h"
#include "static.h"

#define MAGIC_CONSTMAP 0x70616d63676e6767ull  /* "ggngcmap" */
#define MAGIC_CONSTMAP2 0x32706d63676e6767ull /* "ggngcmp2" */

lookup_status lookup_static_open(lookup_static *cache, const void *data, size_t size) {
    CHECK(cache != NULL && data != NULL, LOOKUP_E_ARGUMENT);
    const unsigned char *p = data;
    CHECK(size >= LOOKUP_STATIC_HEADER, LOOKUP_E_TRUNCATED);
    uint64_t magic = load64(p), n_entries = load64(p + 8), map_size = load64(p + 16), n_keys = 0;
    CHECK(magic == MAGIC_CONSTMAP || magic == MAGIC_CONSTMAP2, LOOKUP_E_MAGIC);
    uint64_t head = LOOKUP_STATIC_HEADER, rest = size - head;
    if (magic == MAGIC_CONSTMAP2) {
        CHECK(rest >= 8, LOOKUP_E_TRUNCATED);
        n_keys = load64(p + head);
        head += 8;
        rest -= 8;
        CHECK(n_keys <= rest / 16, LOOKUP_E_TRUNCATED);
        rest -= 16 * n_keys;
    }
    CHECK(n_entries <= rest / 8 && map_size == rest - 8 * n_entries, LOOKUP_E_TRUNCATED);
    CHECK(n_entries <= 1ull << (64 - LOOKUP_SPAN_BITS), LOOKUP_E_LIMIT);
    lookup_static c = {.entries = p + head, .n_entries = n_entries,
                       .map_start = p + head + 8 * n_entries, .map_size = map_size, .n_keys = n_keys};
    c.keys = magic == MAGIC_CONSTMAP2 ? c.map_start + map_size : NULL;
    TRY(lookup_map_open(&c.map, c.map_start, (size_t)map_size));
    *cache = c;
    return LOOKUP_OK;
}

lookup_status lookup_static_followers(const lookup_static *cache, int32_t t0, int32_t t1, uint64_t *offset, uint64_t *n) {
    CHECK(cache != NULL && offset != NULL && n != NULL, LOOKUP_E_ARGUMENT);
    uint64_t value = 0;
    span s = {0, 0};
    if (map_get(&cache->map, key_of(t0, t1), &value)) CHECK(span_of(cache, value, &s), LOOKUP_E_SPAN);
    *offset = s.offset;
    *n = s.length;
    return LOOKUP_OK;
}

#define BLOCK 16

lookup_status lookup_static_spans(const lookup_static *cache, const uint64_t *keys, size_t n,
                                  uint64_t *offsets, uint32_t *lengths) {
    CHECK(cache != NULL && (n == 0 || (keys && offsets && lengths)), LOOKUP_E_ARGUMENT);
    uint64_t values[BLOCK];
    uint8_t found[BLOCK];
    for (size_t start = 0; start < n; start += BLOCK) {
        size_t count = n - start < BLOCK ? n - start : BLOCK;
        TRY(lookup_map_get_many(&cache->map, keys + start, count, values, found));
        for (size_t i = 0; i < count; ++i) {
            span s = {0, 0};
            if (found[i]) CHECK(span_of(cache, values[i], &s), LOOKUP_E_SPAN);
            offsets[start + i] = s.offset;
            lengths[start + i] = (uint32_t)s.length;
        }
    }
    return LOOKUP_OK;
}

lookup_status lookup_static_records(const int32_t *ngrams, const uint32_t *lengths, size_t n,
                                    uint64_t offset, uint64_t *records) {
    CHECK(n == 0 || (ngrams && lengths && records), LOOKUP_E_ARGUMENT);
    for (size_t i = 0; i < n; ++i) {
        CHECK(ngrams[2 * i] >= 0 && ngrams[2 * i + 1] >= 0, LOOKUP_E_TOKEN);
        CHECK(lengths[i] >= 1 && lengths[i] < 1u << LOOKUP_SPAN_BITS, LOOKUP_E_LIMIT);
        CHECK(offset >> (64 - LOOKUP_SPAN_BITS) == 0, LOOKUP_E_LIMIT);
        records[2 * i] = key_of(ngrams[2 * i], ngrams[2 * i + 1]);
        records[2 * i + 1] = (offset << LOOKUP_SPAN_BITS) | lengths[i];
        offset += lengths[i];
    }
    return LOOKUP_OK;
}

lookup_status lookup_static_check_entries(const lookup_static *cache, const uint64_t *offsets,
                                          const uint32_t *lengths, size_t n, int32_t max_token, uint64_t *bad) {
    CHECK(cache != NULL && bad != NULL && (n == 0 || (offsets && lengths)), LOOKUP_E_ARGUMENT);
    for (size_t i = 0; i < n; ++i) {
        *bad = offsets[i];
        CHECK(lengths[i] >= 1 && offsets[i] <= cache->n_entries && lengths[i] <= cache->n_entries - offsets[i], LOOKUP_E_SPAN);
        int32_t before = -1;
        for (uint64_t e = offsets[i]; e < offsets[i] + lengths[i]; ++e) {
            int32_t token = entry_token(cache->entries, e), count = entry_count(cache->entries, e);
            *bad = e;
            CHECK(token >= 0 && token <= max_token, LOOKUP_E_TOKEN);
            CHECK(token > before, LOOKUP_E_ORDER);
            CHECK(count > 0, LOOKUP_E_COUNT);
            before = token;
        }
    }
    return LOOKUP_OK;
}

/* Unique starts, every end a start or the end of all, and lengths that add up: then the chain from
 * entry 0 reaches the end, and no length is left over for a span outside the chain. */
lookup_status lookup_static_check_tiling(uint64_t n_entries, const uint64_t *offsets, const uint32_t *lengths,
                                         size_t n, uint64_t *marks, uint64_t *covered) {
    CHECK(covered != NULL && (n == 0 || (offsets && lengths && marks)), LOOKUP_E_ARGUMENT);
    uint64_t sum = 0, twice = 0;
    for (size_t i = 0; i < n; ++i) {
        CHECK(offsets[i] <= n_entries && lengths[i] <= n_entries - offsets[i], LOOKUP_E_SPAN);
        if (lengths[i] == 0) continue;
        uint64_t bit = 1ull << (offsets[i] % 64);
        twice |= marks[offsets[i] / 64] & bit;
        marks[offsets[i] / 64] |= bit;
        sum += lengths[i];
    }
    *covered = sum;
    CHECK(twice == 0 && sum == n_entries, LOOKUP_E_TILING);
    CHECK(n_entries == 0 || (marks[0] & 1) != 0, LOOKUP_E_TILING);
    for (size_t i = 0; i < n; ++i) {
        uint64_t end = offsets[i] + lengths[i];
        CHECK(end == n_entries || ((marks[end / 64] >> (end % 64)) & 1), LOOKUP_E_TILING);
    }
    return LOOKUP_OK;
}
