/* Small caches for the tests to take apart. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "lookup_build.h"
#include "test.h"

typedef struct {
    unsigned char *data;
    size_t size;
} blob;
void blob_free(blob *b);

void put32(unsigned char *p, uint32_t v);
void put64(unsigned char *p, uint64_t v);
uint32_t get32(const unsigned char *p);
uint64_t get64(const unsigned char *p);

/* A map of `n` {key, value} records, each phase's halves in the order 0, 1 or (swapped) 1, 0. */
lookup_status make_map(const uint64_t *records, size_t n, int32_t hash, bool swapped, blob *map);
/* A whole constmap file; `entries` as in lookup_group. */
lookup_status make_static(const int32_t *ngrams, const uint32_t *lengths, const int32_t *entries, size_t n_ngrams, size_t n_pairs, blob *file);
/* The grouped n-grams of one order in a random text of `n` tokens below `vocab`. */
typedef struct {
    int32_t order;
    int32_t *ngrams, *entries;
    uint32_t *lengths;
    size_t n_ngrams, n_pairs;
} grouped;
lookup_status make_grouped(const int32_t *tokens, size_t n, int32_t order, int32_t max_token, grouped *g);
void grouped_free(grouped *g);
/* A text that repeats itself often enough to be drafted. */
int32_t *make_text(size_t n, int32_t vocab, uint64_t seed);
/* A static cache's file over `text`. */
lookup_status make_cache(const int32_t *text, size_t n, int32_t vocab, blob *file);
/* A legacy file with n-grams of all four orders. */
lookup_status make_legacy(const int32_t *text, size_t n, int32_t vocab, blob *file);

#endif
