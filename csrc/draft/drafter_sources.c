/* Draft sources by name, for every sequence of a drafter. */
#include "../core/table.h"
#include "drafter.h"

static lookup_status make_cache(lookup_drafter *d, lookup_source **source) {
    lookup_cache_params params;
    lookup_cache_defaults(&params);
    if (d->dynamic != NULL && d->dynamic->index == NULL) TRY(lookup_table_index(d->dynamic, &params.dynamic));
    return lookup_source_ngram_cache(&params, d->cache, d->dynamic, source);
}

static lookup_status make_map(int32_t k4v, lookup_source **source) {
    lookup_ngram_map_params params;
    lookup_ngram_map_defaults(&params);
    params.k4v = k4v;
    return lookup_source_ngram_map(&params, source);
}

static lookup_status make_map_k(lookup_drafter *d, lookup_source **source) {
    (void)d;
    return make_map(0, source);
}

static lookup_status make_map_k4v(lookup_drafter *d, lookup_source **source) {
    (void)d;
    return make_map(1, source);
}

static lookup_status make_simple(lookup_drafter *d, lookup_source **source) {
    lookup_ngram_simple_params params;
    (void)d;
    lookup_ngram_simple_defaults(&params);
    return lookup_source_ngram_simple(&params, source);
}

static lookup_status make_mod(lookup_drafter *d, lookup_source **source) {
    lookup_ngram_mod_params params;
    (void)d;
    lookup_ngram_mod_defaults(&params);
    return lookup_source_ngram_mod(&params, source);
}

static lookup_status make_suffix(lookup_drafter *d, lookup_source **source) {
    lookup_ngram_suffix_params params;
    lookup_ngram_suffix_defaults(&params);
    params.draft = d->params.draft_max;
    return lookup_source_ngram_suffix(&params, source);
}

static lookup_status make_adaptive(lookup_drafter *d, lookup_source **source) {
    if (d->group == NULL) {
        lookup_adaptive_params params = {.draft_max = d->params.draft_max, .dynamic_bytes = d->params.dynamic_bytes};
        TRY(lookup_adaptive_new(&params, d->cache, d->dynamic, &d->group));
    }
    return lookup_adaptive_join(d->group, source);
}

typedef struct {
    const char *name;
    lookup_status (*make)(lookup_drafter *d, lookup_source **source);
} kind;

static const kind KINDS[] = {{"ngram-adaptive", make_adaptive}, {"ngram-cache", make_cache},
                             {"ngram-suffix", make_suffix}, {"ngram-simple", make_simple},
                             {"ngram-map-k", make_map_k}, {"ngram-map-k4v", make_map_k4v},
                             {"ngram-mod", make_mod}};

static const kind *kind_of(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; ++i)
        if (strlen(KINDS[i].name) == length && memcmp(KINDS[i].name, name, length) == 0) return &KINDS[i];
    return NULL;
}

/* The kinds that a list of names asks for, each once. */
static lookup_status read_names(const char *names, const kind **kinds, size_t *n, lookup_error *error) {
    *n = 0;
    for (const char *at = names;; ++at) {
        size_t length = strcspn(at, ",");
        const kind *found = kind_of(at, length);
        bool twice = false;
        for (size_t i = 0; i < *n; ++i) twice |= kinds[i] == found;
        if (found == NULL || twice || *n == MOST_SOURCES) {
            lookup_fail(error, "found draft source '%.*s'%s, expected ngram-adaptive, ngram-cache, ngram-suffix, ngram-simple, "
                        "ngram-map-k, ngram-map-k4v or ngram-mod, each once, with commas between them",
                        (int)(length < 64 ? length : 64), at, twice ? " twice" : "");
            return LOOKUP_E_ARGUMENT;
        }
        kinds[(*n)++] = found;
        at += length;
        if (*at == 0) return LOOKUP_OK;
    }
}

lookup_status lookup_drafter_make_sources(lookup_drafter *d, lookup_error *error) {
    const kind *kinds[MOST_SOURCES];
    size_t n;
    TRY(read_names(d->params.sources, kinds, &n, error));
    d->adaptive = NOBODY;
    for (size_t k = 0; k < n; ++k)
        if (kinds[k]->make == make_adaptive) d->adaptive = (int)k;
    d->n_sources = n;
    for (size_t i = 0; i < d->n_sequences; ++i)
        for (size_t k = 0; k < n; ++k) TRY(kinds[k]->make(d, &d->sequences[i].sources[k]));
    return LOOKUP_OK;
}

void lookup_drafter_free_sources(lookup_drafter *d) {
    for (size_t i = 0; i < d->n_sequences && d->sequences != NULL; ++i)
        for (size_t k = 0; k < MOST_SOURCES; ++k) lookup_source_free(d->sequences[i].sources[k]);
    lookup_adaptive_free(d->group);
}
