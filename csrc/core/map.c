/* Reading a verified constmap in place: open in O(1), look up, verify. */
#include "map.h"

#define BLOCK 16 /* keys hashed and prefetched together; more than the memory system overlaps */

lookup_status lookup_map_open(lookup_map *map, const void *data, size_t size) {
    CHECK(map != NULL && data != NULL, LOOKUP_E_ARGUMENT);
    CHECK(size >= LOOKUP_MAP_HEADER + 8, LOOKUP_E_TRUNCATED);
    const unsigned char *p = data;
    uint64_t magic = load64(p), segment_length = load32(p + 16), segment_count = load32(p + 20);
    uint64_t slots = load32(p + 24);
    CHECK(magic == MAGIC_XXH64 || magic == MAGIC_XXH3, LOOKUP_E_MAGIC);
    if (slots != 0) {
        CHECK(segment_count >= 1, LOOKUP_E_GEOMETRY);
        CHECK(segment_length != 0 && (segment_length & (segment_length - 1)) == 0, LOOKUP_E_GEOMETRY);
        CHECK((segment_count + 2) * segment_length == slots, LOOKUP_E_GEOMETRY);
    }
    uint64_t bytes = LOOKUP_MAP_HEADER + 16 * slots + 8; /* slots < 2^32: no overflow */
    CHECK(bytes <= size, LOOKUP_E_TRUNCATED);
    lookup_map view = {.data = p + LOOKUP_MAP_HEADER, .slots = slots, .seed = load64(p + 8),
                       .segment_length = segment_length, .span = segment_count * segment_length,
                       .bytes = bytes,
                       .hash = magic == MAGIC_XXH3 ? LOOKUP_HASH_XXH3 : LOOKUP_HASH_XXH64};
    *map = view;
    return LOOKUP_OK;
}

lookup_status lookup_map_verify(const lookup_map *map, const void *data) {
    CHECK(map != NULL && data != NULL && map->bytes >= LOOKUP_MAP_HEADER + 8, LOOKUP_E_ARGUMENT);
    const unsigned char *p = data;
    size_t body = (size_t)map->bytes - 8;
    CHECK(lookup_fnv1a(0xcbf29ce484222325ull, p, body) == load64(p + body), LOOKUP_E_CHECKSUM);
    return LOOKUP_OK;
}

lookup_status lookup_map_get_many(const lookup_map *map, const uint64_t *keys, size_t n,
                                  uint64_t *values, uint8_t *found) {
    CHECK(map != NULL && (n == 0 || (keys && values && found)), LOOKUP_E_ARGUMENT);
    uint64_t m[BLOCK];
    triple t[BLOCK];
    for (size_t start = 0; start < n; start += BLOCK) {
        size_t count = n - start < BLOCK ? n - start : BLOCK;
        for (size_t i = 0; i < count && map->slots; ++i) {
            m[i] = mixed(keys[start + i], map->seed, map->hash);
            t[i] = slots_of(m[i], map->span, map->segment_length);
            map_prefetch(map, &t[i]);
        }
        for (size_t i = 0; i < count; ++i) {
            uint64_t value = 0;
            found[start + i] = map->slots != 0 && map_answer(map, m[i], &t[i], &value);
            values[start + i] = value;
        }
    }
    return LOOKUP_OK;
}
