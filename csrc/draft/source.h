/* What every draft source implements. source.c dispatches the public calls through it. */
#ifndef LOOKUP_SOURCE_H
#define LOOKUP_SOURCE_H

#include "../core/internal.h"

typedef struct {
    void (*free)(lookup_source *source);
    lookup_status (*begin)(lookup_source *source, const int32_t *tokens, size_t n);
    lookup_status (*draft)(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                           uint8_t *tiers, size_t capacity, size_t *n_draft);
    lookup_status (*accept)(lookup_source *source, size_t n_accepted);
    lookup_status (*truncate)(lookup_source *source, const int32_t *tokens, size_t n); /* or NULL: begin anew */
} source_calls;

/* First member of every source's own struct. */
struct lookup_source {
    const source_calls *calls;
};

#endif
