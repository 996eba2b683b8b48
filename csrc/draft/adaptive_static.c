/* The static tier of ngram-adaptive: a 2-gram's total and its two most frequent followers. */
#include "adaptive_estimate.h"

lookup_status lookup_adaptive_static_new(static_tier *t, const lookup_static *cache) {
    t->cache = cache;
    t->parts = NULL;
    if (cache == NULL) return LOOKUP_OK;
    t->parts = lookup_alloc((size_t)1 << PART_BITS, sizeof *t->parts);
    return t->parts ? LOOKUP_OK : LOOKUP_E_MEMORY;
}

void lookup_adaptive_static_free(static_tier *t) {
    lookup_free(t->parts);
    t->parts = NULL;
}

/* Among equal counts the lower token leads, which comes first in the file. */
static void summarise(const lookup_static *cache, uint64_t offset, static_part *p) {
    const unsigned char *e = cache->entries + 8 * offset;
    uint64_t total = 0;
    for (uint64_t i = 0; i < p->length; ++i) {
        int32_t found = entry_count(e, i);
        uint32_t count = found > 0 ? (uint32_t)found : 0; /* hostile: `verify` refuses it */
        total += count;
        if (count <= p->count[1]) continue;
        int place = count > p->count[0] ? 0 : 1;
        if (place == 0) {
            p->count[1] = p->count[0];
            p->token[1] = p->token[0];
        }
        p->count[place] = count;
        p->token[place] = entry_token(e, i);
    }
    p->total = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
    for (int i = 0; i < 2; ++i)
        if (p->token[i] < 0) p->token[i] = NO_TOKEN;
}

const static_part *lookup_adaptive_static_part(static_tier *t, int32_t before, int32_t last) {
    uint64_t key = key_of(before, last), value = 0;
    static_part *two = t->parts[(key * 0x9E3779B97F4A7C15ull) >> (64 - PART_BITS)];
    for (int i = 0; i < 2; ++i)
        if (LIKELY(two[i].tag == key + 1)) return &two[i];
    span where = {0, 0};
    if (!map_get(&t->cache->map, key, &value) || !span_of(t->cache, value, &where)) where.length = 0;
    static_part fresh = {.tag = key + 1, .length = where.length, .token = {NO_TOKEN, NO_TOKEN}};
    summarise(t->cache, where.offset, &fresh);
    if (fresh.length < two[0].length) { /* the one that costs most to read again keeps the first place */
        two[1] = fresh;
        return &two[1];
    }
    two[1] = two[0];
    two[0] = fresh;
    return &two[0];
}
