/* Spans and entries of a static cache, shared by static.c, recover.c and drafting. */
#ifndef LOOKUP_STATIC_H
#define LOOKUP_STATIC_H

#include "map.h"

typedef struct {
    uint64_t offset, length;
} span;

/* A map value comes from the payload, so it is hostile until it passed here. */
INLINE bool span_of(const lookup_static *cache, uint64_t value, span *s) {
    s->offset = value >> LOOKUP_SPAN_BITS;
    s->length = value & ((1ull << LOOKUP_SPAN_BITS) - 1);
    return s->length >= 1 && s->offset <= cache->n_entries && s->length <= cache->n_entries - s->offset;
}

INLINE int32_t entry_token(const unsigned char *entries, uint64_t i) { return load_i32(entries + 8 * i); }
INLINE int32_t entry_count(const unsigned char *entries, uint64_t i) { return load_i32(entries + 8 * i + 4); }

/* Count of `token` among `n` entries sorted by token, or 0. The loop's trip count depends on n
 * alone and its step compiles to a conditional move. */
INLINE int32_t find_entry(const unsigned char *entries, uint64_t n, int32_t token) {
    if (n == 0) return 0;
    const unsigned char *base = entries;
    while (n > 1) {
        uint64_t half = n / 2;
        base += load_i32(base + 8 * half) <= token ? 8 * half : 0;
        n -= half;
    }
    return load_i32(base) == token ? load_i32(base + 4) : 0;
}

#endif
