/* The version, the sentence for each status, and the allocation seam. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

int32_t lookup_version(void) {
    return LOOKUP_VERSION_MAJOR * 10000 + LOOKUP_VERSION_MINOR * 100 + LOOKUP_VERSION_PATCH;
}

const char *lookup_strerror(lookup_status status) {
    switch (status) { /* no default: -Wswitch-enum refuses a status without a sentence */
    case LOOKUP_OK: return "ok";
    case LOOKUP_E_ARGUMENT: return "an argument is outside its allowed range";
    case LOOKUP_E_MEMORY: return "out of memory";
    case LOOKUP_E_TRUNCATED: return "the file's size differs from what its header says";
    case LOOKUP_E_MAGIC: return "the magic number is unknown";
    case LOOKUP_E_GEOMETRY: return "the map header contradicts itself";
    case LOOKUP_E_CHECKSUM: return "the checksum does not match the contents";
    case LOOKUP_E_SPAN: return "a span lies outside the entries";
    case LOOKUP_E_ORDER: return "followers or n-grams are not in ascending order";
    case LOOKUP_E_COUNT: return "a count or a number of followers is not positive";
    case LOOKUP_E_TOKEN: return "a token id is negative or too large";
    case LOOKUP_E_TILING: return "the spans do not tile the entries exactly";
    case LOOKUP_E_CONSTRUCTION: return "no seed gave a peelable map";
    case LOOKUP_E_DUPLICATE: return "a key stands twice";
    case LOOKUP_E_LIMIT: return "a size is beyond what the format can hold";
    case LOOKUP_E_KEYS: return "the key table is malformed";
    case LOOKUP_E_NGRAM: return "an n-gram record is malformed";
    case LOOKUP_E_FILE: return "a file could not be read or written";
    }
    return "unknown status";
}

void *lookup_alloc(size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) return NULL;
    size_t bytes = count * size;
    return calloc(bytes ? bytes : 1, 1);
}

void *lookup_realloc(void *old, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) return NULL;
    size_t bytes = count * size;
    return realloc(old, bytes ? bytes : 1);
}

void lookup_free(void *p) { free(p); }

void lookup_fail(lookup_error *error, const char *format, ...) {
    if (error == NULL) return;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(error->text, sizeof error->text, format, arguments) < 0) error->text[0] = 0;
    va_end(arguments);
}
