/* Texts that are tokens wherever they stand, found before any splitting. */
#ifndef LOOKUP_LITERALS_H
#define LOOKUP_LITERALS_H

#include "tokenize.h"

/* One occurrence. `strip` as in lookup_literals_new. */
typedef struct {
    size_t from, to;
    uint32_t order; /* the longest literal first */
    int32_t id;
    uint8_t strip;
} found_literal;

typedef struct {
    found_literal *at;
    size_t count, room;
} found_list;

/* All literals of a text, in its order; `list` keeps its memory for the next text. */
lookup_status lookup_tokenize_find_literals(const lookup_literals *l, const uint8_t *p, size_t size, found_list *list);

#endif
