/* Saving what was learned: tables as legacy files with a sidecar, ngram-adaptive's state. */
#include <stdio.h>

#include "file.h"

#include "../core/meta.h"

/* ---- a table */

/* One record of a sidecar. Returns the bytes it takes; they are written as far as `capacity` reaches. */
static size_t print_record(char *out, size_t capacity, const lookup_file_info *info, uint64_t hash, const char *tokenizer) {
    char vocabulary[24] = "null", size[24] = "null";
    size_t used = 0;
    if (info->vocabulary != 0) snprintf(vocabulary, sizeof vocabulary, "\"%016llx\"", (unsigned long long)info->vocabulary);
    if (info->n_vocab > 0) snprintf(size, sizeof size, "%d", (int)info->n_vocab);
#define HERE (used < capacity ? out + used : NULL), (used < capacity ? capacity - used : 0)
    used += (size_t)snprintf(HERE, "{\"meta\": {\"corpora\": [\"what was said\"], \"fingerprint\": null, \"kind\": \"dynamic\", "
                             "\"n_ngrams\": %llu, \"n_pairs\": %llu, \"n_tokens\": null, \"options\": {}, \"text_fingerprint\": %s, \"tokenizer\": ",
                             (unsigned long long)info->n_ngrams, (unsigned long long)info->n_pairs, vocabulary);
    if (tokenizer == NULL) used += (size_t)snprintf(HERE, "null");
    else used += lookup_meta_quote(tokenizer, used < capacity ? out + used : NULL, used < capacity ? capacity - used : 0);
    used += (size_t)snprintf(HERE, ", \"tool\": \"liblookup %d.%d.%d\", \"vocab_size\": %s}, \"size\": %llu, "
                             "\"xxh64\": \"%016llx\"}", LOOKUP_VERSION_MAJOR, LOOKUP_VERSION_MINOR, LOOKUP_VERSION_PATCH, size,
                             (unsigned long long)info->bytes, (unsigned long long)hash);
#undef HERE
    return used;
}

/* The whole sidecar, ended with 0: of the new file, and of the one that stands there until it is replaced, so
 * that a run killed at any moment leaves a pair that fits together. */
static char *sidecar_text(const char *new_record, const char *old_record) {
    static const char HEAD[] = "{\"files\": [", TAIL[] = "], \"format\": \"lookup-tools sidecar 1\"}\n";
    size_t size = sizeof HEAD + strlen(new_record) + (old_record ? strlen(old_record) + 2 : 0) + sizeof TAIL;
    char *text = lookup_alloc(size, 1);
    if (text != NULL)
        snprintf(text, size, "%s%s%s%s%s", HEAD, new_record, old_record ? ", " : "", old_record ? old_record : "", TAIL);
    return text;
}

static char *record_text(const lookup_file_info *info, uint64_t hash, const char *tokenizer) {
    size_t size = print_record(NULL, 0, info, hash, tokenizer) + 1;
    char *text = lookup_alloc(size, 1);
    if (text != NULL) (void)print_record(text, size, info, hash, tokenizer);
    return text;
}

/* The record of the file that stands at `path`, NULL if there is none that is worth one. */
static char *standing_record(const char *path) {
    lookup_file *old;
    if (!lookup_file_exists(path) || lookup_file_open(path, &old, NULL) != LOOKUP_OK) return NULL;
    mapping bytes;
    char *record = NULL;
    if (lookup_map_file(path, &bytes, NULL) == LOOKUP_OK) {
        lookup_file_info info = old->info;
        info.bytes = bytes.size;
        record = record_text(&info, lookup_xxh64(bytes.data, bytes.size, 0), info.tokenizer[0] != 0 ? info.tokenizer : NULL);
        lookup_unmap_file(&bytes);
    }
    lookup_file_close(old);
    return record;
}

static lookup_status write_pair(const char *path, const void *data, const lookup_file_info *info, const char *tokenizer, lookup_error *error) {
    char *new_record = record_text(info, lookup_xxh64(data, (size_t)info->bytes, 0), tokenizer), *old_record = standing_record(path);
    if (new_record != NULL && old_record != NULL && strcmp(new_record, old_record) == 0) {
        lookup_free(old_record); /* saved again as it is */
        old_record = NULL;
    }
    char *text = new_record != NULL ? sidecar_text(new_record, old_record) : NULL;
    size_t n = strlen(path);
    char *beside = lookup_alloc(n + sizeof ".meta.json", 1);
    lookup_status status = text != NULL && beside != NULL ? LOOKUP_OK : LOOKUP_E_MEMORY;
    if (status == LOOKUP_OK) {
        memcpy(beside, path, n);
        memcpy(beside + n, ".meta.json", sizeof ".meta.json");
        status = lookup_replace_file(beside, text, strlen(text), error);
    }
    if (status == LOOKUP_OK) status = lookup_replace_file(path, data, (size_t)info->bytes, error);
    lookup_free(new_record);
    lookup_free(old_record);
    lookup_free(text);
    lookup_free(beside);
    return status;
}

static lookup_status told(lookup_status status, const char *path, lookup_error *error) {
    if (status != LOOKUP_OK && status != LOOKUP_E_FILE) lookup_fail(error, "%s: %s", path, lookup_strerror(status));
    return status;
}

lookup_status lookup_table_save(const lookup_table *table, const char *path, uint64_t vocabulary, int32_t n_vocab, const char *tokenizer, lookup_error *error) {
    CHECK(table != NULL && path != NULL && n_vocab >= 0, LOOKUP_E_ARGUMENT);
    lookup_file_info info = {.vocabulary = vocabulary, .n_vocab = n_vocab};
    void *bytes = NULL;
    size_t size = 0;
    lookup_status status = lookup_table_bytes(table, &bytes, &size, &info);
    info.bytes = size;
    char *real = status == LOOKUP_OK ? lookup_real_path(path) : NULL;
    if (status == LOOKUP_OK && size == 0) {
        lookup_fail(error, "%s: found a table without n-grams, expected some; save it once something was learned", path);
        lookup_free(real);
        return LOOKUP_E_ARGUMENT;
    }
    if (status == LOOKUP_OK) status = real != NULL ? write_pair(real, bytes, &info, tokenizer, error) : LOOKUP_E_MEMORY;
    lookup_free(bytes);
    lookup_free(real);
    return told(status, path, error);
}

/* ---- ngram-adaptive's state */

lookup_status lookup_adaptive_save(const lookup_adaptive *group, int32_t kind, uint64_t vocabulary, const char *path, lookup_error *error) {
    CHECK(group != NULL && path != NULL, LOOKUP_E_ARGUMENT);
    size_t size;
    TRY(told(lookup_adaptive_state_size(group, kind, &size), path, error));
    void *bytes = lookup_alloc(size, 1);
    char *real = lookup_real_path(path);
    lookup_status status = bytes != NULL && real != NULL ? LOOKUP_OK : LOOKUP_E_MEMORY;
    if (status == LOOKUP_OK) status = lookup_adaptive_state_save(group, kind, vocabulary, bytes, size);
    if (status == LOOKUP_OK) status = lookup_replace_file(real, bytes, size, error);
    lookup_free(bytes);
    lookup_free(real);
    return told(status, path, error);
}

lookup_status lookup_adaptive_load(lookup_adaptive *group, uint64_t vocabulary, int32_t cap, const char *path, lookup_error *error) {
    CHECK(group != NULL && path != NULL && cap >= 0, LOOKUP_E_ARGUMENT);
    mapping bytes;
    lookup_adaptive_state_info info;
    TRY(lookup_map_file(path, &bytes, error));
    lookup_status status = bytes.size > 0 ? lookup_adaptive_state_check(bytes.data, bytes.size, &info) : LOOKUP_E_TRUNCATED;
    if (status != LOOKUP_OK) {
        lookup_fail(error, "%s: found no state of ngram-adaptive (%s), expected one; learn anew without it", path, lookup_strerror(status));
    } else if (vocabulary != 0 && info.vocabulary != 0 && vocabulary != info.vocabulary) {
        lookup_fail(error, "%s: found what was learned with another vocabulary, expected this model's; learn anew without it", path);
        status = LOOKUP_E_ARGUMENT;
    } else {
        status = told(lookup_adaptive_state_load(group, bytes.data, bytes.size, cap), path, error);
    }
    lookup_unmap_file(&bytes);
    return status;
}
