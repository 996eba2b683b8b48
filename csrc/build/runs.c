/* Sorted records: summing, merging, grouping into n-grams and expanding them again. */
#include "../core/layout.h"

INLINE void put(uint64_t *out, size_t i, const uint64_t *key, uint64_t count, int words) {
    uint64_t *to = out + (size_t)(words + 1) * i;
    for (int w = 0; w < words; ++w) to[w] = key[w];
    to[words] = count;
}

INLINE size_t aggregate(const uint64_t *records, size_t n, uint64_t *out, int words, int stride) {
    size_t n_out = 0, s = (size_t)stride;
    for (size_t i = 0; i < n;) {
        const uint64_t *key = records + s * i;
        uint64_t count = 0;
        for (; i < n && key_compare(records + s * i, key, words) == 0; ++i)
            count = sum_counts(count, record_count(records + s * i, words, stride));
        put(out, n_out++, key, count, words);
    }
    return n_out;
}

lookup_status lookup_aggregate(const lookup_layout *layout, const uint64_t *records, size_t n,
                               uint64_t *out, size_t *n_out) {
    CHECK(lookup_layout_valid(layout) && n_out != NULL && (n == 0 || (records && out)), LOOKUP_E_ARGUMENT);
    FOR_WIDTH(layout, *n_out = aggregate(records, n, out, W, S));
    return LOOKUP_OK;
}

INLINE size_t merge_two(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, uint64_t *out, int words) {
    size_t s = (size_t)words + 1, n = 0;
    const uint64_t *a_end = a + s * n_a, *b_end = b + s * n_b;
    while (a < a_end && b < b_end) {
        int order = key_compare(a, b, words);
        const uint64_t *key = order <= 0 ? a : b;
        uint64_t count = order == 0 ? sum_counts(a[words], b[words]) : key[words];
        put(out, n++, key, count, words);
        a += order <= 0 ? s : 0;
        b += order >= 0 ? s : 0;
    }
    const uint64_t *rest = a < a_end ? a : b;
    size_t left = (size_t)((a_end - a) + (b_end - b));
    if (left > 0) memcpy(out + s * n, rest, 8 * left);
    return n + left / s;
}

lookup_status lookup_merge_two(const lookup_layout *layout, const uint64_t *a, size_t n_a,
                               const uint64_t *b, size_t n_b, uint64_t *out, size_t *n_out) {
    CHECK(lookup_layout_valid(layout) && layout->stride == layout->key_words + 1 && n_out != NULL, LOOKUP_E_ARGUMENT);
    CHECK((n_a == 0 || a) && (n_b == 0 || b) && (n_a + n_b == 0 || out), LOOKUP_E_ARGUMENT);
    switch (layout->key_words) {
    case 1: *n_out = merge_two(a, n_a, b, n_b, out, 1); break;
    case 2: *n_out = merge_two(a, n_a, b, n_b, out, 2); break;
    default: *n_out = merge_two(a, n_a, b, n_b, out, 3); break;
    }
    return LOOKUP_OK;
}

size_t lookup_upper_bound(const lookup_layout *layout, const uint64_t *records, size_t n, const uint64_t *key) {
    size_t low = 0, s = (size_t)layout->stride;
    while (n > 0) {
        size_t half = n / 2;
        if (key_compare(records + s * (low + half), key, layout->key_words) <= 0) {
            low += half + 1;
            n -= half + 1;
        } else n = half;
    }
    return low;
}

/* A follower's rank among its n-gram's: larger count first, lower token on ties. Unique. */
INLINE uint64_t rank_of(const int32_t *pair) {
    return ((uint64_t)(uint32_t)pair[1] << 32) | (uint32_t)(INT32_MAX - pair[0]);
}

/* The k-th largest rank (k >= 1) by quickselect; reorders `ranks`. */
static uint64_t kth_largest(uint64_t *ranks, size_t n, size_t k) {
    size_t low = 0, high = n, want = k - 1;
    while (high - low > 1) {
        uint64_t pivot = ranks[low + (high - low - 1) / 2];
        size_t i = low, j = high - 1;
        for (;;) {
            while (ranks[i] > pivot) ++i;
            while (ranks[j] < pivot) --j;
            if (i >= j) break;
            uint64_t swap = ranks[i];
            ranks[i++] = ranks[j];
            ranks[j--] = swap;
        }
        if (want <= j) high = j + 1;
        else low = j + 1;
    }
    return ranks[want];
}

/* Prunes one n-gram's followers in place; returns how many stay. */
static size_t prune_followers(const lookup_prune *prune, int32_t *pairs, size_t n, uint64_t *ranks) {
    size_t kept = 0, k = (size_t)prune->top_k;
    for (size_t i = 0; i < n; ++i) {
        if (pairs[2 * i + 1] < prune->min_count) continue;
        pairs[2 * kept] = pairs[2 * i];
        pairs[2 * kept++ + 1] = pairs[2 * i + 1];
    }
    if (k == 0 || kept <= k) return kept;
    for (size_t i = 0; i < kept; ++i) ranks[i] = rank_of(pairs + 2 * i);
    uint64_t least = kth_largest(ranks, kept, k);
    n = kept;
    kept = 0;
    for (size_t i = 0; i < n; ++i) {
        if (rank_of(pairs + 2 * i) < least) continue;
        pairs[2 * kept] = pairs[2 * i];
        pairs[2 * kept++ + 1] = pairs[2 * i + 1];
    }
    return kept;
}

typedef struct {
    int32_t *ngrams, *entries;
    uint32_t *lengths;
    uint64_t *ranks;
    size_t n_ngrams, n_pairs, used;
} groups;

INLINE bool same_ngram(const uint64_t *a, const uint64_t *b, int words, int bits) {
    for (int w = 0; w < words - 1; ++w)
        if (a[w] != b[w]) return false;
    return (a[words - 1] >> bits) == (b[words - 1] >> bits);
}

/* Reads one n-gram's records from `i`; returns where the next n-gram starts. */
INLINE size_t one_group(const lookup_layout *l, const uint64_t *records, size_t n, size_t i, int32_t *pairs, size_t *n_pairs, int words, int stride) {
    size_t s = (size_t)stride, p = 0;
    const uint64_t *first = records + s * i;
    while (i < n && same_ngram(records + s * i, first, words, l->bits)) {
        const uint64_t *key = records + s * i;
        uint64_t count = 0;
        for (; i < n && key_compare(records + s * i, key, words) == 0; ++i)
            count = sum_counts(count, record_count(records + s * i, words, stride));
        pairs[2 * p] = (int32_t)(key[words - 1] & ((1ull << l->bits) - 1));
        pairs[2 * p++ + 1] = (int32_t)count;
    }
    *n_pairs = p;
    return i;
}

INLINE void group(const lookup_layout *l, const uint64_t *records, size_t n, bool final, const lookup_prune *prune, groups *g, int words, int stride) {
    bool pruning = prune->min_count > 1 || prune->top_k > 0;
    for (size_t i = 0; i < n;) {
        int32_t *pairs = g->entries + 2 * g->n_pairs;
        size_t found = 0, next = one_group(l, records, n, i, pairs, &found, words, stride);
        if (next == n && !final) return;
        if (pruning) found = prune_followers(prune, pairs, found, g->ranks);
        if (found > 0) {
            int32_t *ngram = g->ngrams + (size_t)l->order * g->n_ngrams;
            for (int k = 0; k < l->order; ++k) ngram[k] = key_token(records + (size_t)stride * i, words, l, k);
            g->lengths[g->n_ngrams++] = (uint32_t)found;
            g->n_pairs += found;
        }
        g->used = i = next;
    }
}

lookup_status lookup_group(const lookup_layout *layout, const uint64_t *records, size_t n, int32_t final,
                           const lookup_prune *prune, int32_t *ngrams, uint32_t *lengths, int32_t *entries,
                           size_t *used, size_t *n_ngrams, size_t *n_pairs) {
    CHECK(lookup_layout_valid(layout) && prune && used && n_ngrams && n_pairs, LOOKUP_E_ARGUMENT);
    CHECK(prune->min_count >= 1 && prune->top_k >= 0, LOOKUP_E_ARGUMENT);
    CHECK(n == 0 || (records && ngrams && lengths && entries), LOOKUP_E_ARGUMENT);
    groups g = {.ngrams = ngrams, .entries = entries, .lengths = lengths};
    if (prune->top_k > 0) {
        g.ranks = lookup_alloc(n, sizeof *g.ranks);
        CHECK(g.ranks != NULL, LOOKUP_E_MEMORY);
    }
    FOR_WIDTH(layout, group(layout, records, n, final != 0, prune, &g, W, S));
    lookup_free(g.ranks);
    *used = g.used;
    *n_ngrams = g.n_ngrams;
    *n_pairs = g.n_pairs;
    return LOOKUP_OK;
}

lookup_status lookup_expand(const lookup_layout *layout, const int32_t *ngrams, const uint32_t *lengths,
                            const int32_t *entries, size_t n_ngrams, size_t n_pairs, int64_t num,
                            int64_t den, uint64_t *records) {
    CHECK(lookup_layout_valid(layout) && layout->stride == layout->key_words + 1, LOOKUP_E_ARGUMENT);
    CHECK(num > 0 && den > 0 && num <= INT32_MAX && den <= INT32_MAX, LOOKUP_E_ARGUMENT);
    CHECK(n_ngrams == 0 || (ngrams && lengths && entries && records), LOOKUP_E_ARGUMENT);
    size_t p = 0, order = (size_t)layout->order, s = (size_t)layout->stride;
    int words = layout->key_words, bits = layout->bits;
    for (size_t g = 0; g < n_ngrams; ++g) {
        uint64_t prefix[MAX_WORDS] = {0};
        for (size_t k = 0; k < order; ++k) {
            CHECK(((uint32_t)ngrams[order * g + k] >> bits) == 0, LOOKUP_E_TOKEN);
            key_push(prefix, words, bits, (uint32_t)ngrams[order * g + k]);
        }
        CHECK(lengths[g] <= n_pairs - p, LOOKUP_E_SPAN);
        for (uint32_t i = 0; i < lengths[g]; ++i, ++p) {
            uint64_t *record = records + s * p;
            CHECK(((uint32_t)entries[2 * p] >> bits) == 0, LOOKUP_E_TOKEN);
            CHECK(entries[2 * p + 1] > 0, LOOKUP_E_COUNT);
            for (int w = 0; w < words; ++w) record[w] = prefix[w];
            key_push(record, words, bits, (uint32_t)entries[2 * p]);
            record[words] = scaled(entries[2 * p + 1], num, den);
        }
    }
    CHECK(p == n_pairs, LOOKUP_E_TILING);
    return LOOKUP_OK;
}
