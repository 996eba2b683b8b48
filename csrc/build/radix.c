/* Sorting records by key. Large ranges are split by their top byte until a piece fits a
 * second-level cache; a piece is then sorted least significant byte first, skipping bytes in which
 * all its keys agree. */
#include "../core/layout.h"

#define SMALL 48            /* records below which insertion sort wins */
#define PIECE_BYTES (1u << 18) /* piece and scratch together stay inside an ordinary L2 */

INLINE void copy_record(uint64_t *to, const uint64_t *from, int stride) {
    for (int k = 0; k < stride; ++k) to[k] = from[k];
}

INLINE unsigned digit(const uint64_t *record, int words, int shift) {
    return (unsigned)(record[words - 1 - shift / 64] >> (shift % 64)) & 0xff;
}

INLINE void insertion(uint64_t *r, size_t n, int words, int stride) {
    for (size_t i = 1; i < n; ++i) {
        uint64_t hold[MAX_WORDS + 1];
        size_t j = i, s = (size_t)stride;
        copy_record(hold, r + s * i, stride);
        for (; j > 0 && key_compare(r + s * (j - 1), hold, words) > 0; --j) copy_record(r + s * j, r + s * (j - 1), stride);
        copy_record(r + s * j, hold, stride);
    }
}

/* Least significant byte first over the low `bits` bits. */
INLINE void lsd(uint64_t *records, uint64_t *scratch, size_t n, int bits, int words, int stride) {
    uint32_t counts[8 * MAX_WORDS][256];
    int n_digits = (bits + 7) / 8;
    memset(counts, 0, (size_t)n_digits * sizeof counts[0]);
    size_t s = (size_t)stride;
    for (size_t i = 0; i < n; ++i)
        for (int d = 0; d < n_digits; ++d) counts[d][digit(records + s * i, words, 8 * d)]++;
    uint64_t *from = records, *to = scratch;
    for (int d = 0; d < n_digits; ++d) {
        uint32_t *c = counts[d], sum = 0;
        if (c[digit(from, words, 8 * d)] == n) continue;
        for (int k = 0; k < 256; ++k) {
            uint32_t here = c[k];
            c[k] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; ++i)
            copy_record(to + s * c[digit(from + s * i, words, 8 * d)]++, from + s * i, stride);
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != records) memcpy(records, from, 8 * s * n);
}

/* One scatter by the byte at `shift`, and each byte's end; false if one byte has them all. */
INLINE bool scatter(const uint64_t *records, uint64_t *out, size_t n, int shift, size_t *ends, int words, int stride) {
    size_t at[256] = {0}, s = (size_t)stride, sum = 0;
    for (size_t i = 0; i < n; ++i) at[digit(records + s * i, words, shift)]++;
    for (int k = 0; k < 256; ++k) {
        size_t here = at[k];
        at[k] = sum;
        sum += here;
        ends[k] = sum;
        if (here == n) return false;
    }
    for (size_t i = 0; i < n; ++i)
        copy_record(out + s * at[digit(records + s * i, words, shift)]++, records + s * i, stride);
    return true;
}

typedef struct {
    size_t from, n;
    int bits; /* keys of this range agree above them */
} range;

/* Ranges wait on a small stack instead of the machine's: each split handles its children of piece
 * size at once and leaves at most 255 larger ones, one level down. */
#define MAX_RANGES (255 * 8 * MAX_WORDS + 1)

INLINE lookup_status sort_width(uint64_t *records, uint64_t *scratch, size_t n, int bits, int words, int stride) {
    size_t s = (size_t)stride, piece = PIECE_BYTES / (8 * s), n_todo = 0;
    range *todo = n > piece ? lookup_alloc(MAX_RANGES, sizeof *todo) : NULL;
    if (n <= piece) {
        if (n <= SMALL) insertion(records, n, words, stride);
        else lsd(records, scratch, n, bits, words, stride);
        return LOOKUP_OK;
    }
    CHECK(todo != NULL, LOOKUP_E_MEMORY);
    todo[n_todo++] = (range){0, n, bits};
    while (n_todo > 0) {
        range r = todo[--n_todo];
        uint64_t *at = records + s * r.from, *spare = scratch + s * r.from;
        int shift = (r.bits - 1) / 8 * 8;
        size_t ends[256], start = 0;
        if (!scatter(at, spare, r.n, shift, ends, words, stride)) {
            if (shift > 0) todo[n_todo++] = (range){r.from, r.n, shift};
            continue;
        }
        memcpy(at, spare, 8 * s * r.n);
        for (int k = 0; k < 256; start = ends[k++]) {
            size_t m = ends[k] - start;
            if (m < 2 || shift == 0) continue;
            if (m > piece) todo[n_todo++] = (range){r.from + start, m, shift};
            else if (m <= SMALL) insertion(at + s * start, m, words, stride);
            else lsd(at + s * start, spare + s * start, m, shift, words, stride);
        }
    }
    lookup_free(todo);
    return LOOKUP_OK;
}

lookup_status lookup_sort(const lookup_layout *layout, uint64_t *records, uint64_t *scratch, size_t n) {
    CHECK(lookup_layout_valid(layout) && (n == 0 || (records && scratch)), LOOKUP_E_ARGUMENT);
    lookup_status status = LOOKUP_OK;
    FOR_WIDTH(layout, status = sort_width(records, scratch, n, key_bits(layout), W, S));
    return status;
}
