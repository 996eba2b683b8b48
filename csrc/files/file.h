/* An open cache file, shared by the files of this room. */
#ifndef LOOKUP_FILE_H
#define LOOKUP_FILE_H

#include "mapping.h"

struct lookup_file {
    char *path;               /* as it was given, for messages */
    mapping bytes;
    lookup_file_info info;
    lookup_legacy_info legacy;
    lookup_static cache;      /* over `bytes`, or over `built` */
    void *built;              /* a legacy file's 2-grams, laid out */
    bool has_static;
};

/* The 2-grams of a legacy file that passed its scan as a constmap file in memory. */
lookup_status lookup_build_static(const mapping *bytes, const lookup_legacy_info *info, void **built, size_t *size);
/* Adds all n-grams of an open file to a table. */
lookup_status lookup_add_legacy(const mapping *bytes, lookup_table *table);
lookup_status lookup_add_static(const lookup_static *cache, lookup_table *table);
/* A table as a legacy file, sorted; *bytes is the caller's. Counts into `info`. */
lookup_status lookup_table_bytes(const lookup_table *table, void **bytes, size_t *size, lookup_file_info *info);

#endif
