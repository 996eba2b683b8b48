/* What builds, checks and measures cache files, beside what lookup.cdef.h has for engines. The same
 * conventions hold. Read by the compiler through lookup_build.h, and by cffi. */

/* ---------------------------------------------------------------- hashes (hash.c, fnv.c) */

/* XXH64 of any bytes; `seed` 0 is what files use. */
uint64_t lookup_xxh64(const void *data, size_t size, uint64_t seed);
/* The same, fed in parts: lookup_xxh64_state in lookup.cdef.h. */
void lookup_xxh64_update(lookup_xxh64_state *state, const void *data, size_t size);
uint64_t lookup_xxh64_digest(const lookup_xxh64_state *state);
/* The two key hashes of the verified constmap, for one key of two tokens. */
uint64_t lookup_key_xxh64(int32_t t0, int32_t t1);
uint64_t lookup_key_xxh3(int32_t t0, int32_t t1);
/* FNV-1a-64 of `data`, continued from `state` (start: 0xcbf29ce484222325). `_serial` is the
 * byte-at-a-time definition; lookup_fnv1a gives the same number several times faster. */
uint64_t lookup_fnv1a(uint64_t state, const void *data, size_t size);
uint64_t lookup_fnv1a_serial(uint64_t state, const void *data, size_t size);

/* ---------------------------------------------------------------- verified constmap (map.c) */

#define LOOKUP_MAP_HEADER 32
#define LOOKUP_MAP_MAX_TRIES 100

/* Borrows `data`; proves from the header alone that every later read is in bounds. O(1).
 * Bytes after the map are allowed and ignored (map->bytes says where they start).
 * E_TRUNCATED, E_MAGIC, E_GEOMETRY. */
lookup_status lookup_map_open(lookup_map *map, const void *data, size_t size);
/* The checksum over the whole map. O(size). E_CHECKSUM. */
lookup_status lookup_map_verify(const lookup_map *map, const void *data);
/* values[i] = value of keys[i], found[i] = 1 or 0; an absent key has value 0. A key is the two
 * tokens as one little-endian u64. */
lookup_status lookup_map_get_many(const lookup_map *map, const uint64_t *keys, size_t n, uint64_t *values, uint8_t *found);

/* Building. Geometry first, then any number of tries with one arena:
 *   run all phases; on LOOKUP_E_CONSTRUCTION take the next plan and run them again. */
typedef struct lookup_map_plan {
    uint64_t n_keys;
    uint64_t seed_state;         /* splitmix64 counter */
    uint64_t seed;
    uint32_t segment_length;
    uint32_t segment_count;
    uint32_t tries;
    int32_t hash;
    uint64_t slots;
    uint64_t map_bytes;          /* serialized size for this geometry */
    uint64_t scratch_bytes;      /* what the build needs beside the output */
} lookup_map_plan;

/* The geometry and seed of the first try. E_LIMIT above 2^32-1 keys. */
lookup_status lookup_map_plan_first(lookup_map_plan *plan, uint64_t n_keys, int32_t hash);
/* The next try's; E_CONSTRUCTION after LOOKUP_MAP_MAX_TRIES. */
lookup_status lookup_map_plan_next(lookup_map_plan *plan);
/* One try. `records` = n_keys x {u64 key, u64 value}; `out` has plan->map_bytes, `scratch`
 * plan->scratch_bytes, both 8-byte aligned. Phases run in order 0, 1, 2, ... LOOKUP_MAP_PHASES-1;
 * halves 0 and 1 of one phase are independent and may run at the same time: the bytes do not depend
 * on it. In the odd phases (hash and partition, bridge, meet in the middle, checksum) half 1 has
 * nothing to do.
 * E_CONSTRUCTION: take the next plan; E_DUPLICATE: neighbouring records have the same key. */
#define LOOKUP_MAP_PHASES 8
lookup_status lookup_map_phase(const lookup_map_plan *plan, int phase, int half, const uint64_t *records, void *out, void *scratch);

/* ---------------------------------------------------------------- counting (pack.c, radix.c, runs.c)
 *
 * Everything between tokens and a cache file is a stream of records, sorted by key. A key is the
 * order+1 tokens of one n-gram and its follower, `bits` bits each, in `key_words` 64-bit words, most
 * significant first and right-aligned, so that comparing words compares tokens. A record is a key
 * alone (it counts 1) or a key and a u64 count: `stride` words, key_words or key_words+1. */
#define LOOKUP_MAX_ORDER 4
#define LOOKUP_PARTITION_BITS 12

typedef struct lookup_layout {
    int32_t order;      /* 1..4 */
    int32_t bits;       /* 1..31 */
    int32_t key_words;  /* 1..3 */
    int32_t stride;     /* key_words or key_words+1 */
} lookup_layout;

/* The layout for ids below `max_token`+1; `counted` adds the count word. E_TOKEN, E_ARGUMENT. */
lookup_status lookup_layout_for(lookup_layout *layout, int32_t order, int32_t max_token, int32_t counted);

/* How many windows `n` tokens in documents ending at `ends` hold; `skip` as in lookup_pack. */
uint64_t lookup_count_windows(const int64_t *ends, size_t n_ends, int32_t order, uint64_t skip);
/* Writes the key of every window of order+1 tokens inside one document. `ends` are ascending
 * offsets, the last one `n`. Windows that end before token `skip` are left out: the first `skip`
 * tokens only carry a document on. Keys come partitioned by their n-gram's top bits: partition k of
 * 2^LOOKUP_PARTITION_BITS is [starts[k], starts[k+1]), unsorted inside. E_TOKEN for an id outside
 * the layout. */
lookup_status lookup_pack(const lookup_layout *layout, const int32_t *tokens, size_t n, const int64_t *ends, size_t n_ends, uint64_t skip, uint64_t *keys, uint64_t *starts);
/* Copies partitions [from, to) of several packed batches into `out`, one after the other. */
lookup_status lookup_gather(const uint64_t *const *keys, const uint64_t *const *starts, size_t n_batches, size_t from, size_t to, int32_t key_words, uint64_t *out);
/* Sorts `n` records by key; `scratch` holds as many. Equal keys keep no order. */
lookup_status lookup_sort(const lookup_layout *layout, uint64_t *records, uint64_t *scratch, size_t n);
/* Sums neighbours with equal keys: sorted records in, strictly ascending counted records out. */
lookup_status lookup_aggregate(const lookup_layout *layout, const uint64_t *records, size_t n, uint64_t *out, size_t *n_out);
/* Merges two strictly ascending runs of counted records, summing equal keys. */
lookup_status lookup_merge_two(const lookup_layout *layout, const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, uint64_t *out, size_t *n_out);
/* Index of the first record whose key is greater than `key` (sorted records). */
size_t lookup_upper_bound(const lookup_layout *layout, const uint64_t *records, size_t n, const uint64_t *key);

typedef struct lookup_prune {
    int32_t min_count;  /* drop followers counted less often; 1 keeps all */
    int32_t top_k;      /* keep the k most frequent followers (lowest id on ties); 0 keeps all */
} lookup_prune;

/* Groups sorted records (raw or counted; neighbours with equal keys are summed, saturating at
 * 2^31-1) into n-grams: ngrams[g][order], lengths[g], and the followers as {token, count} pairs in
 * ascending token order. Room for n of each always suffices. Unless `final`, the last n-gram may go
 * on in the next records and is left: *used says how many records were consumed. */
lookup_status lookup_group(const lookup_layout *layout, const uint64_t *records, size_t n, int32_t final, const lookup_prune *prune, int32_t *ngrams, uint32_t *lengths, int32_t *entries, size_t *used, size_t *n_ngrams, size_t *n_pairs);
/* The way back: counted records from grouped n-grams, each count times num/den, rounded half up,
 * at least 1. E_TOKEN, E_COUNT, E_ARGUMENT. */
lookup_status lookup_expand(const lookup_layout *layout, const int32_t *ngrams, const uint32_t *lengths, const int32_t *entries, size_t n_ngrams, size_t n_pairs, int64_t num, int64_t den, uint64_t *records);

/* ---------------------------------------------------------------- legacy files (legacy.c) */

typedef struct lookup_legacy_info {
    uint64_t n_ngrams[4];   /* records by order, duplicates included */
    uint64_t n_pairs[4];
    uint64_t bytes;         /* where the last whole record ends */
    int32_t max_token;
    int32_t ascending;      /* 1 if records strictly ascend by (order, n-gram) and followers by token */
} lookup_legacy_info;

/* Checks every record of a legacy file and counts them. On failure info->bytes is the offset of the
 * offending record. E_TRUNCATED, E_NGRAM, E_COUNT, E_TOKEN, E_DUPLICATE (a follower twice). */
lookup_status lookup_legacy_scan(const void *data, size_t size, lookup_legacy_info *info);
/* The first record boundary at or behind `from` + `at_least`; `from` is one. E_TRUNCATED. */
lookup_status lookup_legacy_boundary(const void *data, size_t size, size_t from, size_t at_least, size_t *end);
/* Counted records of one order, in file order, from a file that passed the scan. Counts are scaled
 * as in lookup_expand. E_TRUNCATED if there are more than `capacity` of them: the file was changed. */
lookup_status lookup_legacy_records(const void *data, size_t size, const lookup_layout *layout, int64_t num, int64_t den, uint64_t *records, size_t capacity);
/* Serializes grouped n-grams: 20 bytes an n-gram and 8 a pair. */
lookup_status lookup_legacy_write(int32_t order, const int32_t *ngrams, const uint32_t *lengths, const int32_t *entries, size_t n_ngrams, void *out);

/* ---------------------------------------------------------------- static cache files (static.c)
 *
 *    0  magic u64 ("ggngcmap" or "ggngcmp2")
 *    8  n_entries u64
 *   16  map_size u64
 *  (24  n_keys u64, constmap2 only)
 *   24  entries: n_entries x {i32 token, i32 count}
 *       map_size bytes: a verified constmap, then an annex or nothing
 *       (n_keys x {i32 t0, i32 t1, u64 span}, constmap2 only) */

/* Spans of many keys; an absent key has length 0. E_SPAN if a value points outside the entries. */
lookup_status lookup_static_spans(const lookup_static *cache, const uint64_t *keys, size_t n, uint64_t *offsets, uint32_t *lengths);
/* {key, value} map records for consecutive spans from entry `offset` on. E_LIMIT, E_TOKEN. */
lookup_status lookup_static_records(const int32_t *ngrams, const uint32_t *lengths, size_t n, uint64_t offset, uint64_t *records);
/* Checks entries [from, to) of spans that tile them in order: tokens 0..max_token ascending within a
 * span, counts positive. *bad is the entry at fault. E_SPAN (an empty one too), E_ORDER, E_TOKEN,
 * E_COUNT. */
lookup_status lookup_static_check_entries(const lookup_static *cache, const uint64_t *offsets, const uint32_t *lengths, size_t n, int32_t max_token, uint64_t *bad);
/* Whether spans cover the n_entries entries exactly: no hole, no overlap. `marks` is a zeroed bitmap
 * of n_entries bits in u64 words. *covered = entries in spans. E_SPAN, E_TILING. */
lookup_status lookup_static_check_tiling(uint64_t n_entries, const uint64_t *offsets, const uint32_t *lengths, size_t n, uint64_t *marks, uint64_t *covered);

/* ---------------------------------------------------------------- the annex's key table (annex.c) */

/* Sorted 2-grams and span lengths as varints: per t0 {delta t0, number of t1, deltas of t1}, then
 * all lengths. Encoded size is at most 10 bytes a 2-gram plus 10 a distinct t0, lengths 5 each. */
lookup_status lookup_keys_encode(const int32_t *ngrams, const uint32_t *lengths, size_t n, uint8_t *out, size_t capacity, size_t *used);
/* Decodes exactly `n` 2-grams from exactly `size` bytes. E_KEYS. */
lookup_status lookup_keys_decode(const uint8_t *data, size_t size, size_t n, int32_t *ngrams, uint32_t *lengths);

/* ---------------------------------------------------------------- key recovery (recover.c) */

/* Keys travel with their map values: records of {u64 key, u64 value}.
 *
 * One step of the walk over a map without keys: looks up (b, c) for each follower c of each known
 * key (a, b) in `known` [*from, n), and writes keys whose span no one has marked yet to `found`
 * (space for `capacity` records), marking them. `marks` is a bitmap of entry positions, shared between
 * threads; `stamps` (n_stamps words, zeroed once, not shared) with *stamp (0 at first) keeps followers
 * from being asked for twice while neighbouring known keys share their second token: sort them by it.
 * Stops when `found` has no space left for one more key's followers; *from says where to go on. E_SPAN. */
lookup_status lookup_recover_step(const lookup_static *cache, const uint64_t *known, size_t n, size_t *from, uint64_t *marks, uint32_t *stamps, size_t n_stamps, uint32_t *stamp, uint64_t *found, size_t capacity, size_t *n_found, uint64_t *covered);
/* The same for the plain product (t0, t1) for t0 in [first, first+n_first), t1 in [0, vocab). */
lookup_status lookup_recover_pairs(const lookup_static *cache, int32_t first, int32_t n_first, int32_t vocab, uint64_t *marks, uint64_t *found, size_t capacity, size_t *n_found, uint64_t *covered);

/* Counted records of one order, unsorted; `records` holds info.n_pairs[order-1]. E_TOKEN if an id does not
 * fit the layout. */
lookup_status lookup_table_records(const lookup_table *table, const lookup_layout *layout, uint64_t *records);

/* ---------------------------------------------------------------- ngram-cache by its parameters */

typedef struct lookup_cache_params {
    lookup_thresholds context;
    lookup_thresholds dynamic;      /* used where `dynamic` is owned and indexed by the caller */
    int32_t static_samples;
    int32_t static_percent;
} lookup_cache_params;

/* llama.cpp's defaults (drafting.md, section 2). */
void lookup_cache_defaults(lookup_cache_params *params);
/* The `ngram-cache` source. `static_cache` and `dynamic` are borrowed, may be NULL, and may be shared
 * by any number of sources as long as nobody changes them; `dynamic` must be indexed. */
lookup_status lookup_source_ngram_cache(const lookup_cache_params *params, const lookup_static *static_cache, const lookup_table *dynamic, lookup_source **source);

/* ---------------------------------------------------------------- replay (replay.c) */

typedef struct lookup_replay_stats {
    uint64_t n_decode, n_drafted, n_accept, drafted_steps, n_produced;
    uint64_t calls_begin, calls_draft, calls_accept;
    uint64_t gen_drafts, acc_drafts, gen_tokens, acc_tokens;
    uint64_t tier_drafted[LOOKUP_TIERS], tier_accepted[LOOKUP_TIERS];
    uint64_t accepted_at[LOOKUP_MAX_DRAFT];      /* drafts whose token i was accepted */
    uint64_t accepted_length[LOOKUP_MAX_DRAFT + 1]; /* steps that accepted i tokens */
    uint64_t drafted_length[LOOKUP_MAX_DRAFT + 1];  /* steps that drafted i tokens */
} lookup_replay_stats;

/* Replays one chunk of `n` known tokens against the source, the first `n_prompt` given through
 * begin(), and adds to *stats (drafting.md, section 4). */
lookup_status lookup_replay_chunk(lookup_source *source, const int32_t *tokens, size_t n, size_t n_prompt, size_t draft_max, lookup_replay_stats *stats);

/* ---------------------------------------------------------------- requests in lock step (lockstep.c) */

#define LOOKUP_MAX_LANES 4096

/* `sources` has one source for each lane. With `group` they are its members, and draft together.
 * `dynamic` (or NULL) is the table that ngram-cache sources
 * draft from: it learns each chunk when that is over. Chunk k is tokens[k * n_ctx, (k + 1) * n_ctx).
 * Everything is borrowed until lookup_lockstep_free. */
typedef struct lookup_lockstep_params {
    lookup_source *const *sources;
    lookup_adaptive *group;
    lookup_table *dynamic;
    const int32_t *tokens;
    size_t n_lanes, n_chunks, n_ctx, n_prompt, draft_max;
} lookup_lockstep_params;

typedef struct lookup_lockstep_stats {
    uint64_t n_steps, n_produced, n_drafted, n_accept;
} lookup_lockstep_stats;

typedef struct lookup_lockstep lookup_lockstep;

/* E_ARGUMENT also for fewer chunks than lanes. */
lookup_status lookup_lockstep_new(lookup_lockstep **lockstep, const lookup_lockstep_params *params);
void lookup_lockstep_free(lookup_lockstep *lockstep);
/* Up to `n_steps` more steps; *over says that there is none left. Adds to `stats` and to
 * widths[0 .. n_lanes * (1 + draft_max)], the number of steps by tokens in the batch. */
lookup_status lookup_lockstep_run(lookup_lockstep *lockstep, size_t n_steps, uint64_t *widths, lookup_lockstep_stats *stats, int32_t *over);

/* ---- further draft sources (source_simple.c, source_map.c, source_mod.c, source_suffix.c,
 *      source_trace.c)
 *
 * What drafting.md, section 3, defines, each behind the calls above. A source answers for one
 * sequence; its cost per token does not grow with the context. begin() starts a new prompt: the
 * simple and suffix sources forget everything, ngram-map keeps positions by its rules (what it
 * drafts is the present text's all the same), ngram-mod keeps its pool. A history that shrinks
 * without begin() is E_ARGUMENT, a negative token E_TOKEN. Parameters outside the ranges given here
 * are E_ARGUMENT. */

#define LOOKUP_MAX_GRAM 1024   /* llama.cpp's own bound for n-gram and draft lengths */
#define LOOKUP_MAX_HITS 16380  /* where ngram-map's counts stop */
#define LOOKUP_MAX_CHAIN 64
#define LOOKUP_MOD_POOL 4194304

typedef struct lookup_ngram_simple_params {
    int32_t size_n, size_m;     /* 1..LOOKUP_MAX_GRAM */
} lookup_ngram_simple_params;

/* ngram-map-k, or ngram-map-k4v with `k4v`. `compat`: draft as llama.cpp does where the two differ
 * (see source_map.c). */
typedef struct lookup_ngram_map_params {
    int32_t size_n, size_m;     /* 1..LOOKUP_MAX_GRAM */
    int32_t min_hits;           /* 1..LOOKUP_MAX_HITS; k4v only */
    int32_t k4v;                /* 0 or 1 */
    int32_t compat;             /* 0 or 1 */
} lookup_ngram_map_params;

typedef struct lookup_ngram_mod_params {
    int32_t n_match;            /* 1..LOOKUP_MAX_GRAM; below 16 chance matches abound */
    int32_t n_max;              /* 1..LOOKUP_MAX_DRAFT */
    int32_t n_min;              /* 0..LOOKUP_MAX_DRAFT; above n_max only full drafts are made */
} lookup_ngram_mod_params;

typedef struct lookup_ngram_suffix_params {
    int32_t draft;              /* 1..LOOKUP_MAX_DRAFT; bmoe's own flag ends at 8 */
    int32_t min_match;          /* 1..max_match */
    int32_t max_match;          /* 1..LOOKUP_MAX_GRAM */
} lookup_ngram_suffix_params;

/* llama.cpp's defaults (ngram-suffix: bmoe's). */
void lookup_ngram_simple_defaults(lookup_ngram_simple_params *params);
void lookup_ngram_map_defaults(lookup_ngram_map_params *params);
void lookup_ngram_mod_defaults(lookup_ngram_mod_params *params);
void lookup_ngram_suffix_defaults(lookup_ngram_suffix_params *params);

lookup_status lookup_source_ngram_simple(const lookup_ngram_simple_params *params, lookup_source **source);
lookup_status lookup_source_ngram_map(const lookup_ngram_map_params *params, lookup_source **source);
lookup_status lookup_source_ngram_mod(const lookup_ngram_mod_params *params, lookup_source **source);
lookup_status lookup_source_ngram_suffix(const lookup_ngram_suffix_params *params, lookup_source **source);

/* What an ngram-mod source has done to its pool. */
typedef struct lookup_ngram_mod_counts {
    uint64_t used;              /* pool entries occupied now, of LOOKUP_MOD_POOL */
    uint64_t resets_low;        /* emptied after five rounds of low acceptance in a row */
    uint64_t resets_full;       /* emptied at begin(), more than a quarter full */
} lookup_ngram_mod_counts;

/* What an ngram-map source holds. */
typedef struct lookup_ngram_map_counts {
    uint64_t keys;              /* n-grams that matched at least once */
    uint64_t values;            /* continuations held for them (k4v) */
} lookup_ngram_map_counts;

/* E_ARGUMENT if `source` is of another kind. */
lookup_status lookup_ngram_mod_counters(const lookup_source *source, lookup_ngram_mod_counts *counts);
lookup_status lookup_ngram_map_counters(const lookup_source *source, lookup_ngram_map_counts *counts);

/* Asks `n` sources in turn (1..LOOKUP_MAX_CHAIN): the first non-empty draft wins, and accept reaches
 * its maker alone. begin() goes to all. The members are borrowed: free the chain first, then them. */
lookup_status lookup_source_chain(lookup_source *const *sources, size_t n, lookup_source **chain);
/* The member that made the chain's last draft, -1 if none did. E_ARGUMENT if it is not a chain. */
lookup_status lookup_chain_last(const lookup_source *chain, int32_t *last);

/* What one member of a chain was asked and what became of its drafts. */
typedef struct lookup_chain_counts {
    uint64_t calls_begin, calls_draft, calls_accept;
    uint64_t gen_drafts, acc_drafts, gen_tokens, acc_tokens;
} lookup_chain_counts;

/* E_ARGUMENT if `chain` is not one or has no such member. */
lookup_status lookup_chain_counters(const lookup_source *chain, size_t member, lookup_chain_counts *counts);

/* Drafts that some other drafter made: draft i starts at position `positions[i]` of the replayed
 * stream and is tokens[ends[i-1], ends[i]) (from 0 for the first). */
typedef struct lookup_trace {
    const uint64_t *positions;  /* ascending */
    const uint64_t *ends;       /* never falling */
    const int32_t *tokens;
    size_t n;
} lookup_trace;

/* Plays back a trace, whose arrays are borrowed. E_ARGUMENT: positions or ends do not rise;
 * E_TOKEN: a negative id. */
lookup_status lookup_source_trace(const lookup_trace *trace, lookup_source **source);
/* Where in the stream the next sequence starts (0 at first). E_ARGUMENT if it is not a trace. */
lookup_status lookup_trace_seek(lookup_source *source, uint64_t start);

/* ---------------------------------------------------------------- text to ids (csrc/tokenize) */

/* A tokenizer owns what it needs of a vocabulary and never changes: threads share it, each with a
 * memo of its own. Ids are those that llama.cpp gives. */
typedef struct lookup_tokenizer lookup_tokenizer;
typedef struct lookup_literals lookup_literals;
typedef struct lookup_memo lookup_memo;

/* A vocabulary as read from a file. Strings lie one after the other; `ends` tell where each ends.
 * Merges are "left right", best first; a vocabulary with scores has none and joins by score, as
 * SentencePiece does. `unreachable`, which may be NULL, marks tokens that ordinary text never gives. */
typedef struct lookup_tokens {
    const uint8_t *tokens;
    const uint64_t *token_ends;
    const uint8_t *unreachable;
    const uint8_t *merges;
    const uint64_t *merge_ends;
    const float *scores;
    uint32_t n_tokens;
    uint32_t n_merges;
    int32_t rules;
    int32_t ignore_merges;
    int32_t space_prefix;
} lookup_tokens;

/* The rules by which a family of vocabularies splits text, by the family's name; -1: none here. */
int32_t lookup_tokenizer_rules(const char *family);

/* LOOKUP_E_NGRAM where a merge's parts or its result are no tokens, LOOKUP_E_DUPLICATE where a text
 * has two ids, LOOKUP_E_TOKEN where a vocabulary with scores lacks byte tokens. About 1 us a token. */
lookup_status lookup_tokenizer_new(const lookup_tokens *vocabulary, lookup_tokenizer **out);
void lookup_tokenizer_free(lookup_tokenizer *tokenizer);

/* Texts that are found before any splitting, with the id each gives: the longest first, wherever it
 * stands. `strip` bits: 1 takes white space before it away, 2 white space behind it. */
lookup_status lookup_literals_new(const uint8_t *texts, const uint64_t *ends, const int32_t *ids,
                                  const uint8_t *strip, uint32_t n, lookup_literals **out);
void lookup_literals_free(lookup_literals *literals);

/* Remembers the ids of pieces of text: 96 << bits bytes; 17 bits suit prose. */
lookup_status lookup_memo_new(uint32_t bits, lookup_memo **out);
void lookup_memo_free(lookup_memo *memo);

/* How many ids texts of so many bytes may give, and a little more. */
uint64_t lookup_tokenize_room(const lookup_tokenizer *tokenizer, uint64_t bytes);

/* The ids of n texts that lie one after the other in `text`, all of them valid UTF-8, and how many
 * each gives. `literals` may be NULL. 64 bytes behind the last text have to be readable. `room` is how
 * many ids fit in `ids`. LOOKUP_E_ARGUMENT where that is too few, or for a text that is no UTF-8. */
lookup_status lookup_tokenize(const lookup_tokenizer *tokenizer, const lookup_literals *literals,
                              lookup_memo *memo, const uint8_t *text, const uint64_t *ends, size_t n,
                              int32_t *ids, size_t room, int64_t *counts);
