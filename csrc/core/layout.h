/* Keys of order+1 tokens in one to three words (see lookup.cdef.h): packing, comparing, unpacking.
 * Every helper takes the number of words as an argument that its caller passes as a constant, so one
 * body serves all widths and compiles to straight code for each. */
#ifndef LOOKUP_LAYOUT_H
#define LOOKUP_LAYOUT_H

#include "internal.h"

#define MAX_WORDS 3

/* Runs `call` with W and S bound to constants for each legal (key_words, stride). */
#define FOR_WIDTH(layout, call)                                                                    \
    do {                                                                                           \
        switch ((layout)->key_words * 8 + (layout)->stride) {                                      \
        case 9: { enum { W = 1, S = 1 }; call; break; }                                            \
        case 10: { enum { W = 1, S = 2 }; call; break; }                                           \
        case 18: { enum { W = 2, S = 2 }; call; break; }                                           \
        case 19: { enum { W = 2, S = 3 }; call; break; }                                           \
        case 27: { enum { W = 3, S = 3 }; call; break; }                                           \
        case 28: { enum { W = 3, S = 4 }; call; break; }                                           \
        default: return LOOKUP_E_ARGUMENT;                                                         \
        }                                                                                          \
    } while (0)

bool lookup_layout_valid(const lookup_layout *layout);

INLINE int key_bits(const lookup_layout *layout) { return layout->bits * (layout->order + 1); }

/* Shifts one more token in at the low end. */
INLINE void key_push(uint64_t *key, int words, int bits, uint32_t token) {
    for (int w = 0; w < words - 1; ++w) key[w] = (key[w] << bits) | (key[w + 1] >> (64 - bits));
    key[words - 1] = (key[words - 1] << bits) | token;
}

/* Token number `i` (0 first) of a key. */
INLINE int32_t key_token(const uint64_t *key, int words, const lookup_layout *layout, int i) {
    int shift = (layout->order - i) * layout->bits, w = words - 1 - shift / 64, s = shift % 64;
    uint64_t low = key[w] >> s;
    if (s + layout->bits > 64 && w > 0) low |= key[w - 1] << (64 - s);
    return (int32_t)(low & ((1ull << layout->bits) - 1));
}

INLINE int key_compare(const uint64_t *a, const uint64_t *b, int words) {
    for (int w = 0; w < words - 1; ++w)
        if (a[w] != b[w]) return a[w] < b[w] ? -1 : 1;
    return (a[words - 1] > b[words - 1]) - (a[words - 1] < b[words - 1]);
}

INLINE uint64_t record_count(const uint64_t *record, int words, int stride) {
    return stride > words ? record[words] : 1;
}

INLINE uint64_t sum_counts(uint64_t a, uint64_t b) {
    uint64_t sum = a + b;
    return sum > INT32_MAX ? INT32_MAX : sum;
}

/* One count times num/den, rounded half up, at least 1, saturated. Both are at most 2^31. */
INLINE uint64_t scaled(int32_t count, int64_t num, int64_t den) {
    if (num == den) return (uint64_t)count;
    uint64_t n = (uint64_t)count * (uint64_t)num, d = (uint64_t)den;
    uint64_t q = n / d + (n % d >= (d + 1) / 2);
    return q < 1 ? 1 : q > INT32_MAX ? INT32_MAX : q;
}

#endif
