/* Opening a cache file by path, whatever its format, and asking what it says about itself. */
#include "file.h"

#include "../core/meta.h"

#define MAGIC_CONSTMAP 0x70616d63676e6767ull  /* "ggngcmap" */
#define MAGIC_CONSTMAP2 0x32706d63676e6767ull /* "ggngcmp2" */
#define REBUILD "rebuild the file or copy it again"

/* What people pass by mistake, and what to do about it. */
static const struct {
    const char *magic, *what, *advice;
} FOREIGN[] = {
    {"ggngc", "a ggngc file of an unknown version", "ggngcmap and ggngcmp2 are known"},
    {"GGUF", "a GGUF model", "give the model with -m and a cache here"},
    {"\x1f\x8b\x08", "a gzip file", "decompress it first"},
    {"\x28\xb5\x2f\xfd", "a zstd file", "decompress it first"},
    {"\xfd" "7zXZ", "an xz file", "decompress it first"},
    {"PK\x03\x04", "a zip file", "unpack it first"},
    {"VMAP0001", "a bare constmap without followers", "build a cache with lookup-create"},
    {"VCMP0002", "a bare constmap without followers", "build a cache with lookup-create"},
    {"lttokens", "a token file", "build a cache from it with lookup-create --tokens"},
    {"lkadapt1", "what a drafter learned", "give a cache here"},
};

/* Text has no 0; a legacy record (small ids and counts) is full of them. */
static bool is_text(const mapping *bytes) {
    size_t n = bytes->size < 4096 ? bytes->size : 4096;
    if (memchr(bytes->data, 0, n) != NULL) return false;
    for (size_t i = 0; i < n; ++i)
        if (bytes->data[i] < 0x20 && strchr("\t\n\r\f\v", bytes->data[i]) == NULL) return false;
    return true;
}

static const char *foreign(const mapping *bytes, const char **advice) {
    *advice = "build a cache with lookup-create";
    if (bytes->size == 0) return "an empty file";
    for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; ++i) {
        size_t n = strlen(FOREIGN[i].magic);
        if (bytes->size < n || memcmp(bytes->data, FOREIGN[i].magic, n) != 0) continue;
        *advice = FOREIGN[i].advice;
        return FOREIGN[i].what;
    }
    return is_text(bytes) ? "a text file" : NULL;
}

static lookup_status damaged(const lookup_file *f, lookup_status status, lookup_error *error) {
    if (status == LOOKUP_E_MEMORY) lookup_fail(error, "%s: %s", f->path, lookup_strerror(status));
    else lookup_fail(error, "%s: %s; " REBUILD, f->path, lookup_strerror(status));
    return status;
}

static lookup_status open_constmap(lookup_file *f, lookup_error *error) {
    const mapping *b = &f->bytes;
    lookup_status status = lookup_static_open(&f->cache, b->data, b->size);
    if (status != LOOKUP_OK) return damaged(f, status, error);
    f->has_static = true;
    const char *meta = NULL;
    size_t size = 0, map = (size_t)f->cache.map.bytes;
    status = lookup_meta_annex(f->cache.map_start + map, (size_t)f->cache.map_size - map, &meta, &size);
    if (status == LOOKUP_OK && meta != NULL) status = lookup_meta_read(meta, size, &f->info);
    if (status == LOOKUP_OK) return status;
    lookup_fail(error, "%s: found an annex that contradicts itself; " REBUILD, f->path);
    return status;
}

static lookup_status check_sidecar(lookup_file *f, const char *path, lookup_error *error) {
    mapping text;
    TRY(lookup_map_file(path, &text, error));
    int found = 0;
    uint64_t hash = lookup_xxh64(f->bytes.data, f->bytes.size, 0);
    lookup_status status = lookup_meta_sidecar(text.data ? (const char *)text.data : "", text.size, f->bytes.size, hash, &f->info, &found);
    lookup_unmap_file(&text);
    if (status != LOOKUP_OK) {
        lookup_fail(error, "%s: found no sidecar of ours; delete it or rebuild the cache", path);
    } else if (!found) {
        lookup_fail(error, "%s: found other contents than %s says: the file was cut or changed; rebuild it, or delete the "
                    "sidecar if it was replaced on purpose", f->path, path);
        status = LOOKUP_E_CHECKSUM;
    }
    return status;
}

static lookup_status open_legacy(lookup_file *f, lookup_error *error) {
    lookup_status status = lookup_legacy_scan(f->bytes.data, f->bytes.size, &f->legacy);
    if (status != LOOKUP_OK) {
        lookup_fail(error, "%s: at byte %llu: %s; " REBUILD, f->path, (unsigned long long)f->legacy.bytes, lookup_strerror(status));
        return status;
    }
    for (int k = 0; k < 4; ++k) {
        f->info.n_ngrams += f->legacy.n_ngrams[k];
        f->info.n_pairs += f->legacy.n_pairs[k];
    }
    char *real = lookup_real_path(f->path), *beside = NULL;
    size_t n = real != NULL ? strlen(real) : 0;
    if (real != NULL) beside = lookup_alloc(n + sizeof ".meta.json", 1);
    status = beside != NULL ? LOOKUP_OK : damaged(f, LOOKUP_E_MEMORY, error);
    if (status == LOOKUP_OK) {
        memcpy(beside, real, n);
        memcpy(beside + n, ".meta.json", sizeof ".meta.json");
        if (lookup_file_exists(beside)) status = check_sidecar(f, beside, error);
    }
    lookup_free(real);
    lookup_free(beside);
    return status;
}

static lookup_status open_any(lookup_file *f, lookup_error *error) {
    TRY(lookup_map_file(f->path, &f->bytes, error));
    f->info.bytes = f->bytes.size;
    uint64_t magic = f->bytes.size >= 8 ? load64(f->bytes.data) : 0;
    if (magic == MAGIC_CONSTMAP || magic == MAGIC_CONSTMAP2) {
        f->info.format = magic == MAGIC_CONSTMAP ? LOOKUP_FORMAT_CONSTMAP : LOOKUP_FORMAT_CONSTMAP2;
        return open_constmap(f, error);
    }
    const char *advice, *what = foreign(&f->bytes, &advice);
    if (what != NULL) {
        lookup_fail(error, "%s: found %s, expected a cache file (legacy, constmap or constmap2); %s", f->path, what, advice);
        return f->bytes.size == 0 ? LOOKUP_E_TRUNCATED : LOOKUP_E_MAGIC;
    }
    f->info.format = LOOKUP_FORMAT_LEGACY;
    return open_legacy(f, error);
}

lookup_status lookup_file_open(const char *path, lookup_file **file, lookup_error *error) {
    CHECK(path != NULL && file != NULL, LOOKUP_E_ARGUMENT);
    lookup_file *f = lookup_alloc(1, sizeof *f);
    size_t n = strlen(path) + 1;
    if (f != NULL) f->path = lookup_alloc(n, 1);
    if (f == NULL || f->path == NULL) {
        lookup_fail(error, "%s: %s", path, lookup_strerror(LOOKUP_E_MEMORY));
        lookup_free(f);
        return LOOKUP_E_MEMORY;
    }
    memcpy(f->path, path, n);
    lookup_status status = open_any(f, error);
    if (status != LOOKUP_OK) {
        lookup_file_close(f);
        return status;
    }
    *file = f;
    return LOOKUP_OK;
}

void lookup_file_close(lookup_file *f) {
    if (f == NULL) return;
    lookup_unmap_file(&f->bytes);
    lookup_free(f->built);
    lookup_free(f->path);
    lookup_free(f);
}

lookup_status lookup_file_get_info(const lookup_file *f, lookup_file_info *info) {
    CHECK(f != NULL && info != NULL, LOOKUP_E_ARGUMENT);
    *info = f->info;
    return LOOKUP_OK;
}

lookup_status lookup_file_check_vocabulary(const lookup_file *f, uint64_t vocabulary, int32_t n_vocab, int32_t *verdict, lookup_error *error) {
    CHECK(f != NULL && verdict != NULL && n_vocab >= 0, LOOKUP_E_ARGUMENT);
    const lookup_file_info *i = &f->info;
    bool other_size = n_vocab > 0 && (i->n_vocab > 0 ? i->n_vocab != n_vocab : f->legacy.max_token >= n_vocab && i->format == LOOKUP_FORMAT_LEGACY);
    bool told = i->vocabulary != 0 && vocabulary != 0;
    *verdict = told && i->vocabulary == vocabulary && !other_size ? LOOKUP_VOCABULARY_SAME
               : told || other_size                               ? LOOKUP_VOCABULARY_OTHER
                                                                  : LOOKUP_VOCABULARY_UNKNOWN;
    if (*verdict == LOOKUP_VOCABULARY_OTHER)
        lookup_fail(error, "%s: found a cache made with %s%s, expected this model's vocabulary of %d tokens: its ids mean other text "
                    "here; rebuild it with this model", f->path, i->n_vocab > 0 && i->tokenizer[0] != 0 ? "the vocabulary of " : "another vocabulary",
                    i->n_vocab > 0 ? i->tokenizer : "", (int)n_vocab);
    return LOOKUP_OK;
}

lookup_status lookup_file_static(lookup_file *f, const lookup_static **cache, lookup_error *error) {
    CHECK(f != NULL && cache != NULL, LOOKUP_E_ARGUMENT);
    if (!f->has_static) {
        size_t size = 0;
        void *built = NULL;
        lookup_status status = lookup_build_static(&f->bytes, &f->legacy, &built, &size);
        if (status == LOOKUP_OK) status = lookup_static_open(&f->cache, built, size);
        if (status != LOOKUP_OK) {
            lookup_free(built);
            return damaged(f, status, error);
        }
        f->built = built;
        f->has_static = true;
    }
    *cache = &f->cache;
    return LOOKUP_OK;
}

lookup_status lookup_file_table(const lookup_file *f, lookup_table **table, lookup_error *error) {
    CHECK(f != NULL && table != NULL, LOOKUP_E_ARGUMENT);
    lookup_table *t = NULL;
    lookup_status status = lookup_table_new(&t);
    if (status == LOOKUP_OK && f->info.format == LOOKUP_FORMAT_LEGACY) status = lookup_add_legacy(&f->bytes, t);
    else if (status == LOOKUP_OK) status = lookup_add_static(&f->cache, t);
    if (status != LOOKUP_OK) {
        lookup_table_free(t);
        if (status != LOOKUP_E_KEYS) return damaged(f, status, error);
        lookup_fail(error, "%s: found a constmap whose n-grams cannot all be listed from here, expected a legacy file; convert it with "
                    "lookup-merge --format legacy", f->path);
        return status;
    }
    *table = t;
    return LOOKUP_OK;
}
