/* What a cache file says about itself, as JSON: see meta.c. */
#ifndef LOOKUP_META_H
#define LOOKUP_META_H

#include "internal.h"

/* The metadata object in data[0..size) into the fields of `info` that it has. E_KEYS: no JSON object. */
lookup_status lookup_meta_read(const char *data, size_t size, lookup_file_info *info);
/* The record of a sidecar that speaks of a file of this size and hash (16 hex digits), whose metadata
 * goes into `info`. *found 0: it speaks of others only. E_KEYS: no sidecar of ours. */
lookup_status lookup_meta_sidecar(const char *data, size_t size, uint64_t file_bytes, uint64_t file_hash, lookup_file_info *info, int *found);
/* The metadata in the annex behind a map: data[0..size) is what the map section holds behind its map.
 * *meta stays NULL where there is no annex of ours. E_KEYS: a damaged one. */
lookup_status lookup_meta_annex(const unsigned char *data, size_t size, const char **meta, size_t *meta_size);
/* Appends a JSON string to `out`, as far as `capacity` reaches; returns the bytes it needs. */
size_t lookup_meta_quote(const char *text, char *out, size_t capacity);

#endif
