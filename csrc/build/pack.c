/* Tokens -> keys: every window of order+1 tokens inside a document, partitioned by its top bits. */
#include "../core/layout.h"

#define PARTITIONS (1u << LOOKUP_PARTITION_BITS)

uint64_t lookup_count_windows(const int64_t *ends, size_t n_ends, int32_t order, uint64_t skip) {
    uint64_t total = 0, start = 0, reach = (uint64_t)order;
    for (size_t d = 0; d < n_ends; ++d) {
        uint64_t end = (uint64_t)ends[d], first = start + reach;
        if (first < skip) first = skip;
        if (end > first) total += end - first;
        start = end;
    }
    return total;
}

static lookup_status check_tokens(const lookup_layout *l, const int32_t *tokens, size_t n,
                                  const int64_t *ends, size_t n_ends) {
    int64_t before = 0;
    for (size_t d = 0; d < n_ends; ++d) {
        CHECK(ends[d] >= before, LOOKUP_E_ARGUMENT);
        before = ends[d];
    }
    CHECK((uint64_t)before == n, LOOKUP_E_ARGUMENT);
    uint32_t all = 0;
    for (size_t i = 0; i < n; ++i) all |= (uint32_t)tokens[i];
    CHECK((all >> l->bits) == 0, LOOKUP_E_TOKEN);
    return LOOKUP_OK;
}

/* The lowest of the bits that choose a key's partition: never one of the follower's, so that no
 * n-gram is spread over two. */
INLINE int partition_shift(const lookup_layout *l) {
    int ngram_bits = l->bits * l->order;
    return key_bits(l) - (ngram_bits < LOOKUP_PARTITION_BITS ? ngram_bits : LOOKUP_PARTITION_BITS);
}

INLINE size_t partition_of(const uint64_t *key, int words, int shift) {
    int w = words - 1 - shift / 64, s = shift % 64;
    uint64_t low = key[w] >> s;
    if (s != 0 && w > 0) low |= key[w - 1] << (64 - s);
    return (size_t)(low & (PARTITIONS - 1));
}

/* Walks all windows; pass 0 counts partitions in at[], pass 1 writes the keys where at[] says. */
INLINE void windows(const lookup_layout *l, const int32_t *tokens, const int64_t *ends,
                    size_t n_ends, uint64_t skip, uint64_t *keys, uint64_t *at, int words, bool write) {
    const int bits = l->bits, total = key_bits(l), shift = partition_shift(l);
    const uint64_t top = (total % 64) ? (1ull << (total % 64)) - 1 : ~0ull;
    uint64_t start = 0, reach = (uint64_t)l->order;
    for (size_t d = 0; d < n_ends; start = (uint64_t)ends[d++]) {
        uint64_t end = (uint64_t)ends[d], first = start + reach < skip ? skip : start + reach;
        if (first >= end) continue;
        uint64_t key[MAX_WORDS] = {0};
        for (uint64_t i = first - reach; i < first; ++i) key_push(key, words, bits, (uint32_t)tokens[i]);
        for (uint64_t i = first; i < end; ++i) {
            key_push(key, words, bits, (uint32_t)tokens[i]);
            key[0] &= top;
            size_t p = partition_of(key, words, shift);
            if (!write) at[p]++;
            else memcpy(keys + (size_t)words * at[p]++, key, 8 * (size_t)words);
        }
    }
}

static void pack_width(const lookup_layout *l, const int32_t *tokens, const int64_t *ends,
                       size_t n_ends, uint64_t skip, uint64_t *keys, uint64_t *starts) {
    uint64_t at[PARTITIONS] = {0};
    switch (l->key_words) {
    case 1: windows(l, tokens, ends, n_ends, skip, keys, at, 1, false); break;
    case 2: windows(l, tokens, ends, n_ends, skip, keys, at, 2, false); break;
    default: windows(l, tokens, ends, n_ends, skip, keys, at, 3, false); break;
    }
    uint64_t sum = 0;
    for (size_t p = 0; p < PARTITIONS; ++p) {
        starts[p] = sum;
        sum += at[p];
        at[p] = starts[p];
    }
    starts[PARTITIONS] = sum;
    switch (l->key_words) {
    case 1: windows(l, tokens, ends, n_ends, skip, keys, at, 1, true); break;
    case 2: windows(l, tokens, ends, n_ends, skip, keys, at, 2, true); break;
    default: windows(l, tokens, ends, n_ends, skip, keys, at, 3, true); break;
    }
}

lookup_status lookup_pack(const lookup_layout *layout, const int32_t *tokens, size_t n,
                          const int64_t *ends, size_t n_ends, uint64_t skip, uint64_t *keys,
                          uint64_t *starts) {
    CHECK(lookup_layout_valid(layout) && starts != NULL && skip <= n, LOOKUP_E_ARGUMENT);
    CHECK(n == 0 || (tokens != NULL && ends != NULL && keys != NULL), LOOKUP_E_ARGUMENT);
    TRY(check_tokens(layout, tokens, n, ends, n_ends));
    pack_width(layout, tokens, ends, n_ends, skip, keys, starts);
    return LOOKUP_OK;
}

lookup_status lookup_gather(const uint64_t *const *keys, const uint64_t *const *starts,
                            size_t n_batches, size_t from, size_t to, int32_t key_words, uint64_t *out) {
    CHECK(from <= to && to <= PARTITIONS && key_words >= 1 && key_words <= MAX_WORDS, LOOKUP_E_ARGUMENT);
    size_t words = (size_t)key_words;
    for (size_t b = 0; b < n_batches; ++b) {
        size_t first = (size_t)starts[b][from], n = (size_t)starts[b][to] - first;
        if (n == 0) continue; /* an empty batch may have no keys at all */
        memcpy(out, keys[b] + words * first, 8 * words * n);
        out += words * n;
    }
    return LOOKUP_OK;
}
