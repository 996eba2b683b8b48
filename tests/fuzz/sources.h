/* Draft sources as an input describes them, and dull models that say what some of them draft. */
#ifndef FUZZ_SOURCES_H
#define FUZZ_SOURCES_H

#include "fuzz.h"

#define MEMBERS 4
#define MAX_VOCAB 12

typedef enum { SIMPLE, MAP, MOD, SUFFIX, CACHE, KINDS } source_kind;

typedef struct {
    source_kind kind;
    union {
        lookup_ngram_simple_params simple;
        lookup_ngram_map_params map;
        lookup_ngram_mod_params mod;
        lookup_ngram_suffix_params suffix;
    } params;
} member;

/* All ids are base..base+vocab-1. Texts come with the place where a new stream starts in them. */
typedef struct {
    int32_t vocab, base;
    member members[MEMBERS];
    size_t n_members;
    lookup_cache_params params;
    int32_t *static_text, *dynamic_text;
    size_t n_static, n_dynamic, dynamic_seam;
    blob file;
    lookup_static cache;
    lookup_table *dynamic;
} arrangement;

void arrange(input *in, arrangement *a);
void arrangement_free(arrangement *a);
lookup_source *make_source(const arrangement *a, size_t number);
/* `n` tokens of the arrangement's alphabet, in memory of exactly their size. */
int32_t *take_text(input *in, const arrangement *a, size_t n);

typedef struct {
    int32_t tokens[LOOKUP_MAX_DRAFT];
    uint8_t tiers[LOOKUP_MAX_DRAFT];
    size_t n;
} drafted;

/* Fails unless member `number` may draft `d` with room for `room` after these tokens. For ngram-cache,
 * -simple and -suffix there is one right answer; the drafts of the others are the text's own. */
void check_draft(const arrangement *a, size_t number, const int32_t *tokens, size_t n, size_t room, const drafted *d);

#endif
