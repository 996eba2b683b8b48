/* Enumerating a constmap that carries no keys. The followers of (a, b) are tokens c for which (b, c)
 * was itself counted, so known keys lead to further ones; a bitmap of entry positions tells new
 * spans from known ones, also between threads. Whether the walk is complete is decided by
 * lookup_static_check_tiling, not here. */
#include "../core/static.h"

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
        w->found[2 * w->n_found] = w->keys[i];
        w->found[2 * w->n_found++ + 1] = values[i];
        w->covered += s.length;
    }
    w->n_keys = 0;
    return LOOKUP_OK;
}

static lookup_status ask(walk *w, uint64_t key) {
    w->keys[w->n_keys++] = key;
    return w->n_keys == BLOCK ? flush(w) : LOOKUP_OK;
}

/* Asks for (t1, c) for every follower c in a span that has not been stamped. */
INLINE lookup_status ask_followers(walk *w, int32_t t1, span s, uint32_t *stamps, size_t n_stamps, uint32_t stamp) {
    for (uint64_t e = s.offset; e < s.offset + s.length; ++e) {
        int32_t c = entry_token(w->cache->entries, e);
        if ((uint32_t)c < n_stamps) { /* a hostile id is asked for every time it turns up */
            if (stamps[c] == stamp) continue;
            stamps[c] = stamp;
        }
        TRY(ask(w, key_of(t1, c)));
    }
    return LOOKUP_OK;
}

#define AHEAD 8 /* known keys whose followers are on their way from memory */

lookup_status lookup_recover_step(const lookup_static *cache, const uint64_t *known, size_t n, size_t *from,
                                  uint64_t *marks, uint32_t *stamps, size_t n_stamps, uint32_t *stamp,
                                  uint64_t *found, size_t capacity, size_t *n_found, uint64_t *covered) {
    CHECK(cache && from && marks && found && n_found && covered && (n == 0 || known), LOOKUP_E_ARGUMENT);
    CHECK(stamp && (n_stamps == 0 || stamps), LOOKUP_E_ARGUMENT);
    walk w = {.cache = cache, .marks = marks, .found = found};
    size_t first = *from;
    for (; *from < n; ++*from) {
        const uint64_t *record = known + 2 * *from;
        span s, later;
        CHECK(span_of(cache, record[1], &s), LOOKUP_E_SPAN);
        if (*from + AHEAD < n && span_of(cache, record[2 * AHEAD + 1], &later)) PREFETCH(cache->entries + 8 * later.offset);
        if (s.length + w.n_keys > capacity - w.n_found) TRY(flush(&w));
        if (s.length > capacity - w.n_found) {
            CHECK(w.n_found > 0, LOOKUP_E_ARGUMENT);
            break;
        }
        if (*from == first || record[0] >> 32 != record[-2] >> 32) ++*stamp;
        TRY(ask_followers(&w, (int32_t)(record[0] >> 32), s, stamps, n_stamps, *stamp));
    }
    TRY(flush(&w));
    *n_found = w.n_found;
    *covered = w.covered;
    return LOOKUP_OK;
}

lookup_status lookup_recover_pairs(const lookup_static *cache, int32_t first, int32_t n_first, int32_t vocab,
                                   uint64_t *marks, uint64_t *found, size_t capacity, size_t *n_found, uint64_t *covered) {
    CHECK(cache && marks && found && n_found && covered, LOOKUP_E_ARGUMENT);
    CHECK(first >= 0 && n_first >= 0 && vocab >= 0 && first <= INT32_MAX - n_first, LOOKUP_E_ARGUMENT);
    CHECK((uint64_t)n_first * (uint64_t)vocab <= capacity, LOOKUP_E_ARGUMENT);
    walk w = {.cache = cache, .marks = marks, .found = found};
    for (int32_t t0 = first; t0 < first + n_first; ++t0)
        for (int32_t t1 = 0; t1 < vocab; ++t1) TRY(ask(&w, key_of(t0, t1)));
    TRY(flush(&w));
    *n_found = w.n_found;
    *covered = w.covered;
    return LOOKUP_OK;
}
