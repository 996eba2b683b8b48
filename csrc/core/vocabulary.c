/* The fingerprint of a vocabulary's token texts and kinds: see lookup.cdef.h. */
#include "internal.h"

static lookup_status add(lookup_vocabulary *v, const char *text, size_t size, int32_t kind) {
    CHECK(kind >= LOOKUP_TOKEN_TEXT && kind <= LOOKUP_TOKEN_UNUSED && size <= UINT32_MAX, LOOKUP_E_ARGUMENT);
    unsigned char length[4], byte = kind == LOOKUP_TOKEN_UNUSED;
    store32(length, (uint32_t)size);
    lookup_xxh64_update(&v->state, length, sizeof length);
    if (size > 0) lookup_xxh64_update(&v->state, text, size);
    lookup_xxh64_update(&v->state, &byte, 1);
    v->n_tokens++;
    return LOOKUP_OK;
}

lookup_status lookup_vocabulary_add(lookup_vocabulary *v, const char *text, size_t size, int32_t kind) {
    CHECK(v != NULL && (size == 0 || text != NULL), LOOKUP_E_ARGUMENT);
    return add(v, text, size, kind);
}

lookup_status lookup_vocabulary_add_many(lookup_vocabulary *v, const char *texts, const uint64_t *ends,
                                         const uint8_t *kinds, size_t n) {
    CHECK(v != NULL && (n == 0 || (texts && ends && kinds)), LOOKUP_E_ARGUMENT);
    for (size_t i = 0; i < n; ++i) {
        uint64_t from = i > 0 ? ends[i - 1] : 0;
        CHECK(ends[i] >= from, LOOKUP_E_ARGUMENT);
        TRY(add(v, texts + from, (size_t)(ends[i] - from), kinds[i]));
    }
    return LOOKUP_OK;
}

uint64_t lookup_vocabulary_fingerprint(const lookup_vocabulary *v) {
    uint64_t digest = v != NULL ? lookup_xxh64_digest(&v->state) : 0;
    return digest != 0 ? digest : 1;
}
