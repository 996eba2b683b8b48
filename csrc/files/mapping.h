/* What is asked of the operating system: see mapping.c. */
#ifndef LOOKUP_MAPPING_H
#define LOOKUP_MAPPING_H

#include "../core/internal.h"

typedef struct {
    const unsigned char *data;
    size_t size;
    void *handle; /* Windows: the mapping */
} mapping;

/* Maps a file to be read. An empty one has no data. E_FILE. */
lookup_status lookup_map_file(const char *path, mapping *file, lookup_error *error);
void lookup_unmap_file(mapping *file);
/* Whether there is such a file. */
bool lookup_file_exists(const char *path);
/* The path behind links, to be freed with lookup_free: what is beside a file, or replaces it, is beside
 * the file itself. A path that does not exist stands for itself. NULL: no memory. */
char *lookup_real_path(const char *path);
/* Replaces `path` by these bytes, as a whole or not at all: written beside it, flushed to the disk,
 * renamed. It keeps the old file's permissions. E_FILE. */
lookup_status lookup_replace_file(const char *path, const void *data, size_t size, lookup_error *error);

#endif
