/* The annex's key table: sorted 2-grams, delta-coded as LEB128 varints. */
#include "internal.h"

typedef struct {
    unsigned char *p, *end;
} sink;

static bool put_varint(sink *s, uint32_t v) {
    if (s->end - s->p < 5) return false;
    for (; v >= 0x80; v >>= 7) *s->p++ = (unsigned char)(v | 0x80);
    *s->p++ = (unsigned char)v;
    return true;
}

static bool get_varint(const unsigned char **p, const unsigned char *end, uint32_t *v) {
    uint64_t sum = 0;
    for (int shift = 0; shift < 35 && *p < end; shift += 7) {
        unsigned char byte = *(*p)++;
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *v = (uint32_t)sum;
            return sum <= UINT32_MAX;
        }
    }
    return false;
}

/* The end of the run of 2-grams that share their first token. */
static size_t run_end(const int32_t *ngrams, size_t n, size_t i) {
    size_t j = i + 1;
    while (j < n && ngrams[2 * j] == ngrams[2 * i]) ++j;
    return j;
}

lookup_status lookup_keys_encode(const int32_t *ngrams, const uint32_t *lengths, size_t n,
                                 uint8_t *out, size_t capacity, size_t *used) {
    CHECK(used != NULL && (n == 0 || (ngrams && lengths && out)), LOOKUP_E_ARGUMENT);
    sink s = {out, out + capacity};
    int32_t before0 = 0;
    for (size_t i = 0, j; i < n; i = j) {
        j = run_end(ngrams, n, i);
        CHECK((i == 0 ? ngrams[0] >= 0 : ngrams[2 * i] > before0) && j - i <= UINT32_MAX, LOOKUP_E_ORDER);
        bool fits = put_varint(&s, (uint32_t)(ngrams[2 * i] - before0)) && put_varint(&s, (uint32_t)(j - i));
        before0 = ngrams[2 * i];
        int32_t before1 = 0;
        for (size_t k = i; k < j; ++k) {
            CHECK(k == i ? ngrams[2 * k + 1] >= 0 : ngrams[2 * k + 1] > before1, LOOKUP_E_ORDER);
            fits = fits && put_varint(&s, (uint32_t)(ngrams[2 * k + 1] - before1));
            before1 = ngrams[2 * k + 1];
        }
        CHECK(fits, LOOKUP_E_LIMIT);
    }
    for (size_t i = 0; i < n; ++i) CHECK(put_varint(&s, lengths[i]), LOOKUP_E_LIMIT);
    *used = (size_t)(s.p - out);
    return LOOKUP_OK;
}

/* before + delta, if that is a token above `least`. */
static bool next_token(int32_t before, uint32_t delta, bool first, int32_t *token) {
    int64_t sum = (int64_t)before + delta;
    *token = (int32_t)sum;
    return sum <= INT32_MAX && (first || delta > 0);
}

lookup_status lookup_keys_decode(const uint8_t *data, size_t size, size_t n, int32_t *ngrams, uint32_t *lengths) {
    CHECK((n == 0 || (ngrams && lengths)) && (size == 0 || data), LOOKUP_E_ARGUMENT);
    const unsigned char *p = data, *end = size ? data + size : data;
    int32_t t0 = 0;
    for (size_t i = 0; i < n;) {
        uint32_t delta = 0, group = 0;
        CHECK(get_varint(&p, end, &delta) && next_token(t0, delta, i == 0, &t0), LOOKUP_E_KEYS);
        CHECK(get_varint(&p, end, &group) && group >= 1 && group <= n - i, LOOKUP_E_KEYS);
        int32_t t1 = 0;
        for (uint32_t k = 0; k < group; ++k, ++i) {
            CHECK(get_varint(&p, end, &delta) && next_token(t1, delta, k == 0, &t1), LOOKUP_E_KEYS);
            ngrams[2 * i] = t0;
            ngrams[2 * i + 1] = t1;
        }
    }
    for (size_t i = 0; i < n; ++i) CHECK(get_varint(&p, end, &lengths[i]) && lengths[i] >= 1, LOOKUP_E_KEYS);
    CHECK(p == end, LOOKUP_E_KEYS);
    return LOOKUP_OK;
}
