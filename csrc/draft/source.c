/* The public calls on a draft source: argument checks, then the source's own function. */
#include "source.h"

void lookup_source_free(lookup_source *source) {
    if (source != NULL) source->calls->free(source);
}

lookup_status lookup_source_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    CHECK(source != NULL && (n == 0 || tokens != NULL), LOOKUP_E_ARGUMENT);
    return source->calls->begin(source, tokens, n);
}

lookup_status lookup_source_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                                  uint8_t *tiers, size_t capacity, size_t *n_draft) {
    CHECK(source && n_draft && (n == 0 || tokens) && (capacity == 0 || draft), LOOKUP_E_ARGUMENT);
    CHECK(capacity <= LOOKUP_MAX_DRAFT, LOOKUP_E_ARGUMENT);
    uint8_t unused[LOOKUP_MAX_DRAFT];
    *n_draft = 0;
    return source->calls->draft(source, tokens, n, draft, tiers ? tiers : unused, capacity, n_draft);
}

lookup_status lookup_source_accept(lookup_source *source, size_t n_accepted) {
    CHECK(source != NULL, LOOKUP_E_ARGUMENT);
    return source->calls->accept(source, n_accepted);
}

lookup_status lookup_source_truncate(lookup_source *source, const int32_t *tokens, size_t n) {
    CHECK(source != NULL && (n == 0 || tokens != NULL), LOOKUP_E_ARGUMENT);
    const source_calls *calls = source->calls;
    return calls->truncate ? calls->truncate(source, tokens, n) : calls->begin(source, tokens, n);
}

/* By blocks that stay in the first cache, so that a long common history costs no more than reading it. */
size_t lookup_common_prefix(const int32_t *a, const int32_t *b, size_t n) {
    enum { BLOCK = 1024 };
    if (a == NULL || b == NULL) return 0;
    size_t i = 0;
    while (n - i >= BLOCK && memcmp(a + i, b + i, BLOCK * sizeof *a) == 0) i += BLOCK;
    while (i < n && a[i] == b[i]) ++i;
    return i;
}
