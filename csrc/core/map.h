/* The verified constmap's arithmetic, shared by the reader (map.c), the builder (map_build.c), key
 * recovery and drafting.
 *
 *   offset  0  magic (8)     "VMAP0001": XXH64 keys, "VCMP0002": XXH3 keys
 *           8  seed u64
 *          16  segment_length u32, power of two
 *          20  segment_count u32
 *          24  slots u32 = (segment_count + 2) * segment_length
 *          28  n u32 (some writers leave 0: never relied on)
 *          32  values u64[slots], then checks u64[slots], then FNV-1a u64 of all before */
#ifndef LOOKUP_MAP_H
#define LOOKUP_MAP_H

#include "internal.h"

#define MAGIC_XXH64 0x3130303050414d56ull /* "VMAP0001" */
#define MAGIC_XXH3 0x32303030504d4356ull  /* "VCMP0002" */

typedef struct {
    uint64_t p0, p1, p2;
} triple;

/* The three slots of a mixed hash. p1 and p2 differ from p0's offset only in the low bits, and each
 * segment is a power of two, so they stay inside the next two segments. */
INLINE triple slots_of(uint64_t m, uint64_t span, uint64_t segment_length) {
    uint64_t mask = segment_length - 1, p0 = mulhi64(m, span);
    triple t = {p0, (p0 + segment_length) ^ ((m >> 18) & mask),
                (p0 + 2 * segment_length) ^ (m & mask)};
    return t;
}

INLINE uint64_t check_of(uint64_t m) { return m ^ (m >> 32); }

INLINE uint64_t mixed(uint64_t key, uint64_t seed, int32_t hash) {
    uint64_t h = hash == LOOKUP_HASH_XXH3 ? xxh3_key8(key) : xxh64_key8(key);
    return fmix64(h + seed);
}

INLINE uint64_t map_word(const lookup_map *map, uint64_t i) { return load64(map->data + 8 * i); }

INLINE void map_prefetch(const lookup_map *map, const triple *t) {
    const unsigned char *checks = map->data + 8 * map->slots;
    PREFETCH(checks + 8 * t->p0);
    PREFETCH(checks + 8 * t->p1);
    PREFETCH(checks + 8 * t->p2);
    PREFETCH(map->data + 8 * t->p0);
    PREFETCH(map->data + 8 * t->p1);
    PREFETCH(map->data + 8 * t->p2);
}

/* Presence and value of a mixed hash whose slots are known. */
INLINE bool map_answer(const lookup_map *map, uint64_t m, const triple *t, uint64_t *value) {
    uint64_t n = map->slots;
    uint64_t check = map_word(map, n + t->p0) ^ map_word(map, n + t->p1) ^ map_word(map, n + t->p2);
    if (check != check_of(m)) return false;
    *value = map_word(map, t->p0) ^ map_word(map, t->p1) ^ map_word(map, t->p2);
    return true;
}

INLINE bool map_get(const lookup_map *map, uint64_t key, uint64_t *value) {
    if (map->slots == 0) return false;
    uint64_t m = mixed(key, map->seed, map->hash);
    triple t = slots_of(m, map->span, map->segment_length);
    return map_answer(map, m, &t, value);
}

#endif
