/* Any bytes as an annex's key table; and any 2-grams as one, there and back. */
#include "fuzz.h"

#include <string.h>

#define MOST 25 /* encoded bytes a 2-gram takes at most: see lookup_keys_encode */

typedef struct {
    size_t n;
    int32_t *ngrams;
    uint32_t *lengths;
} keys;

static keys keys_of(size_t n) {
    keys k = {n, test_memory(8 * n), test_memory(4 * n)};
    return k;
}

static void keys_free(keys *k) {
    test_free(k->ngrams);
    test_free(k->lengths);
}

static void check_ascending(const keys *k) {
    for (size_t i = 0; i < k->n; ++i) {
        const int32_t *here = k->ngrams + 2 * i;
        MUST(here[0] >= 0 && here[1] >= 0 && k->lengths[i] >= 1);
        MUST(i == 0 || here[0] > here[-2] || (here[0] == here[-2] && here[1] > here[-1]));
    }
}

/* Keys that decoded encode to bytes that decode to them, and to no others. */
static void there_and_back(const keys *k) {
    keys again = keys_of(k->n);
    uint8_t *out = test_memory(MOST * k->n);
    size_t used = 0;
    MUST(lookup_keys_encode(k->ngrams, k->lengths, k->n, out, MOST * k->n, &used) == LOOKUP_OK && used <= MOST * k->n);
    uint8_t *exact = test_copy(out, used);
    MUST(lookup_keys_decode(exact, used, k->n, again.ngrams, again.lengths) == LOOKUP_OK);
    MUST(k->n == 0 || memcmp(again.ngrams, k->ngrams, 8 * k->n) == 0);
    MUST(k->n == 0 || memcmp(again.lengths, k->lengths, 4 * k->n) == 0);
    for (size_t cut = 1; cut <= used && cut < 4; ++cut)
        MUST(lookup_keys_decode(exact, used - cut, k->n, again.ngrams, again.lengths) == LOOKUP_E_KEYS);
    test_free(out);
    test_free(exact);
    keys_free(&again);
}

static void decode(const uint8_t *data, size_t size, size_t n) {
    uint8_t *table = test_copy(data, size);
    keys k = keys_of(n);
    lookup_status status = lookup_keys_decode(table, size, n, k.ngrams, k.lengths);
    MUST(status == LOOKUP_OK || status == LOOKUP_E_KEYS);
    if (status == LOOKUP_OK) {
        check_ascending(&k);
        there_and_back(&k);
    }
    keys_free(&k);
    test_free(table);
}

/* Any numbers as 2-grams, in any order and with little room. */
static void encode(const uint8_t *data, size_t size, size_t room) {
    keys k = keys_of(size / 12);
    uint8_t *out = test_memory(room);
    size_t used = 0;
    for (size_t i = 0; i < k.n; ++i) {
        memcpy(k.ngrams + 2 * i, data + 12 * i, 8);
        memcpy(k.lengths + i, data + 12 * i + 8, 4);
    }
    lookup_status status = lookup_keys_encode(k.ngrams, k.lengths, k.n, out, room, &used);
    MUST(used <= room);
    if (status == LOOKUP_OK) {
        bool empty_span = false;
        for (size_t i = 0; i < k.n; ++i) empty_span |= k.lengths[i] == 0;
        if (!empty_span) check_ascending(&k);
        if (!empty_span) there_and_back(&k);
    } else MUST(status == LOOKUP_E_ORDER || status == LOOKUP_E_LIMIT);
    test_free(out);
    keys_free(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = input_of(data, size);
    size_t n = take(&in);
    n |= take(&in) << 8;
    decode(in.at, left(&in), n);
    encode(in.at, left(&in), n);
    return 0;
}
