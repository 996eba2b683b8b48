/* Enumerating a constmap that carries no keys. The followers of (a, b) are tokens c for which (b, c)
 * was itself counted, so known keys lead to further ones; a bitmap of entry positions tells new
 * spans from known ones, also between threads. Whether the walk is complete is decided by
 * lookup_static_check_tiling, not here. */
#include "staticcore.h"

#define BLOCK 16

/* Sets a mark; true for the one caller that set it. */
INLINE bool claim(uint64_t *marks, uint64_t at) {
    uint64_t bit = 1ull << (at % 64);
    if (__atomic_load_n(&marks[at / 64], __ATOMIC_RELAXED) & bit) return false;
    return (__atomic_fetch_or(&marks[at / 64], bit, __ATOMIC_RELAXED) & bit) == 0;
}

typedef struct {
    const lookup_static *cache;
    uint64_t *marks, *found, covered;
    size_t n_found, n_keys;
    uint64_t keys[BLOCK];
} walk;

static lookup_status flush(walk *w) {
    uint64_t values[BLOCK];
    uint8_t found[BLOCK];
    TRY(lookup_map_get_many(&w->cache->map, w->keys, w->n_keys, values, found));
    for (size_t i = 0; i < w->n_keys; ++i) {
        span s;
        if (!found[i]) continue;
        CHECK(span_of(w->cache, values[i], &s), LOOKUP_E_SPAN);
        if (!claim(w->marks, s.offset)) continue;
        w->found[w->n_found++] = w->keys[i];
        w->covered += s.length;
    }
    w->n_keys = 0;
    return LOOKUP_OK;
}

static lookup_status ask(walk *w, uint64_t key) {
    w->keys[w->n_keys++] = key;
    return w->n_keys == BLOCK ? flush(w) : LOOKUP_OK;
}

lookup_status lookup_recover_step(const lookup_static *cache, const uint64_t *known, size_t n, size_t *from,
                                  uint64_t *marks, uint64_t *found, size_t room, size_t *n_found, uint64_t *covered) {
    CHECK(cache && from && marks && found && n_found && covered && (n == 0 || known), LOOKUP_E_ARGUMENT);
    walk w = {.cache = cache, .marks = marks, .found = found};
    for (; *from < n; ++*from) {
        uint64_t offset = 0, length = 0;
        int32_t t0 = (int32_t)(uint32_t)known[*from], t1 = (int32_t)(known[*from] >> 32);
        TRY(lookup_static_followers(cache, t0, t1, &offset, &length));
        if (length + w.n_keys > room - w.n_found) TRY(flush(&w)); /* what waits may be no keys */
        if (length > room - w.n_found) {
            CHECK(w.n_found > 0, LOOKUP_E_ARGUMENT);
            break;
        }
        for (uint64_t e = offset; e < offset + length; ++e)
            TRY(ask(&w, key_of(t1, entry_token(cache->entries, e))));
    }
    TRY(flush(&w));
    *n_found = w.n_found;
    *covered = w.covered;
    return LOOKUP_OK;
}

lookup_status lookup_recover_pairs(const lookup_static *cache, int32_t first, int32_t n_first, int32_t vocab,
                                   uint64_t *marks, uint64_t *found, size_t room, size_t *n_found, uint64_t *covered) {
    CHECK(cache && marks && found && n_found && covered, LOOKUP_E_ARGUMENT);
    CHECK(first >= 0 && n_first >= 0 && vocab >= 0 && first <= INT32_MAX - n_first, LOOKUP_E_ARGUMENT);
    CHECK((uint64_t)n_first * (uint64_t)vocab <= room, LOOKUP_E_ARGUMENT);
    walk w = {.cache = cache, .marks = marks, .found = found};
    for (int32_t t0 = first; t0 < first + n_first; ++t0)
        for (int32_t t1 = 0; t1 < vocab; ++t1) TRY(ask(&w, key_of(t0, t1)));
    TRY(flush(&w));
    *n_found = w.n_found;
    *covered = w.covered;
    return LOOKUP_OK;
}
