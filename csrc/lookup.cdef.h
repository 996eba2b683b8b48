/* What an engine needs of the library: open cache files, follow texts, draft, learn, save.
 *
 * Typedefs, one enum, integer #defines and prototypes only, because two readers share this file: the
 * compiler (through lookup.h) and cffi. What builds, checks and measures files is in
 * lookup_build.cdef.h. Start with lookup_file_open and lookup_drafter_new; docs/embedding.md has a
 * whole program.
 *
 * Errors. Calls that can fail return a lookup_status: 0 ok, negative failure. Unless a call says
 * otherwise, its outputs mean something after LOOKUP_OK only, and every call may also return
 * E_ARGUMENT (a NULL that is not allowed, a value outside its range) and, where it allocates,
 * E_MEMORY. Other calls cannot fail and return their answer. Nothing is printed, nothing aborts.
 *
 * Ownership. `_new` and `lookup_file_open` give the caller an object to end with its `_free` or
 * `_close`, which take NULL. `_open` into a caller's struct borrows the buffer, which must outlive
 * it. What an object was made from (const lookup_static *, lookup_table *) is borrowed until that
 * object is freed. Token arrays and strings are read during the call only.
 *
 * Threads. The library starts none and has no global state. One object is for one thread at a time;
 * calls on different objects may run at the same time. What is passed as const may be shared by any
 * number of threads as long as nobody changes it: one lookup_file and its lookup_static serve all.
 *
 * Tokens are int32 >= 0, counts int32 > 0. Little-endian hosts only. Plain C11 but
 * for two files: ngram-cache (source_cache.c) needs __int128, key recovery (recover.c) needs GCC's
 * __atomic built-ins. GCC and clang have both for 64-bit systems. */

typedef enum lookup_status {
    LOOKUP_OK = 0,
    LOOKUP_E_ARGUMENT = -1,
    LOOKUP_E_MEMORY = -2,
    LOOKUP_E_TRUNCATED = -3,
    LOOKUP_E_MAGIC = -4,
    LOOKUP_E_GEOMETRY = -5,
    LOOKUP_E_CHECKSUM = -6,
    LOOKUP_E_SPAN = -7,
    LOOKUP_E_ORDER = -8,
    LOOKUP_E_COUNT = -9,
    LOOKUP_E_TOKEN = -10,
    LOOKUP_E_TILING = -11,
    LOOKUP_E_CONSTRUCTION = -12,
    LOOKUP_E_DUPLICATE = -13,
    LOOKUP_E_LIMIT = -14,
    LOOKUP_E_KEYS = -15,
    LOOKUP_E_NGRAM = -16,
    LOOKUP_E_FILE = -17,
} lookup_status;

/* The version of the library that is running: what LOOKUP_VERSION_* were when it was compiled, as
 * major * 10000 + minor * 100 + patch. Programs compiled with another major version must not go on
 * (before 1.0: another minor version). */
int32_t lookup_version(void);
#define LOOKUP_VERSION_MAJOR 0
#define LOOKUP_VERSION_MINOR 1
#define LOOKUP_VERSION_PATCH 0
/* One sentence for a status, for people. A static string. */
const char *lookup_strerror(lookup_status status);
/* A failure told for people in one line: what was found, what was expected, what to do. Filled, ending
 * with a 0, by calls that take one and fail; such calls take NULL, too. */
#define LOOKUP_ERROR_SIZE 512
typedef struct lookup_error {
    char text[LOOKUP_ERROR_SIZE];
} lookup_error;

/* ---------------------------------------------------------------- static caches in memory (map.c, static.c) */

#define LOOKUP_HASH_XXH64 0
#define LOOKUP_HASH_XXH3 1

/* A read-only view of a serialized map. All-zero is a closed view that finds nothing. */
typedef struct lookup_map {
    const unsigned char *data;   /* data words, then check words; any alignment */
    uint64_t slots;              /* words in each of the two arrays */
    uint64_t seed;
    uint64_t segment_length;
    uint64_t span;               /* segment_count * segment_length */
    uint64_t bytes;              /* serialized size, checksum included */
    int32_t hash;                /* LOOKUP_HASH_XXH64 or LOOKUP_HASH_XXH3 */
} lookup_map;

#define LOOKUP_STATIC_HEADER 24
#define LOOKUP_SPAN_BITS 24

/* A read-only view of an open static cache. All-zero is closed and finds nothing. */
typedef struct lookup_static {
    const unsigned char *entries;
    uint64_t n_entries;
    lookup_map map;
    const unsigned char *map_start;
    uint64_t map_size;
    const unsigned char *keys;   /* constmap2's records, or NULL */
    uint64_t n_keys;
} lookup_static;

/* Borrows `data`. Proves from the headers alone that every later read is in bounds. O(1).
 * E_TRUNCATED, E_MAGIC, E_GEOMETRY, E_LIMIT. */
lookup_status lookup_static_open(lookup_static *cache, const void *data, size_t size);
/* The followers of one 2-gram: *n pairs from entry *offset on; n 0 if absent. E_SPAN. */
lookup_status lookup_static_followers(const lookup_static *cache, int32_t t0, int32_t t1, uint64_t *offset, uint64_t *n);

/* ---------------------------------------------------------------- n-gram tables (table.c, index.c)
 *
 * Mutable counts of 1- to 4-grams and their followers: the context cache of a running text, and the
 * dynamic cache of earlier ones. */
typedef struct lookup_table lookup_table;

/* When a draft may trust an n-gram, by order: at least `samples` followers counted in all, the best
 * one with at least `percent` of them. */
typedef struct lookup_thresholds {
    int32_t samples[4];
    int32_t percent[4];
} lookup_thresholds;

typedef struct lookup_table_info {
    uint64_t n_ngrams[4];
    uint64_t n_pairs[4];
    uint64_t bytes;
} lookup_table_info;

lookup_status lookup_table_new(lookup_table **table);
void lookup_table_free(lookup_table *table);
/* Forgets everything. O(used). */
void lookup_table_reset(lookup_table *table);
/* Counts `n` more tokens of the current stream; the next call goes on where this one ended. After a
 * failure the tokens before the one at fault are counted; after E_MEMORY, free the table. */
lookup_status lookup_table_update(lookup_table *table, const int32_t *tokens, size_t n);
/* Ends the current stream: no n-gram reaches across. */
void lookup_table_end_stream(lookup_table *table);
/* Adds grouped n-grams of one order (counts are summed). E_TOKEN, E_COUNT, E_SPAN, E_LIMIT. */
lookup_status lookup_table_add(lookup_table *table, int32_t order, const int32_t *ngrams, const uint32_t *lengths, const int32_t *entries, size_t n_ngrams, size_t n_pairs);
/* Keeps, from now on, for every n-gram that passes `thresholds` what it would draft: what makes a
 * table usable as a dynamic cache. */
lookup_status lookup_table_index(lookup_table *table, const lookup_thresholds *thresholds);
/* Total and largest count of one n-gram's followers, and how many there are; 0 if absent. The first
 * `capacity` followers go to `entries`, in no order. */
lookup_status lookup_table_followers(const lookup_table *table, const int32_t *ngram, int32_t order, int32_t *entries, size_t capacity, size_t *n, uint32_t *total, uint32_t *max);
lookup_status lookup_table_get_info(const lookup_table *table, lookup_table_info *info);

/* ---------------------------------------------------------------- drafting (draft/source_*.c) */

#define LOOKUP_MAX_DRAFT 1024
#define LOOKUP_TIERS 3
#define LOOKUP_TIER_CONTEXT 0
#define LOOKUP_TIER_DYNAMIC 1
#define LOOKUP_TIER_STATIC 2
#define LOOKUP_MEMO_BITS 14

typedef struct lookup_source lookup_source;

/* A source knows the tokens of one sequence only through the calls: `tokens` is everything known so
 * far, the last sampled token included, and must extend what earlier calls since `begin` saw. */
void lookup_source_free(lookup_source *source);
lookup_status lookup_source_begin(lookup_source *source, const int32_t *tokens, size_t n);
/* Up to `capacity` tokens that may follow; *n_draft 0 declines. `tiers`, if given, receives each token's
 * tier (sources without tiers write 0). */
lookup_status lookup_source_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft, uint8_t *tiers, size_t capacity, size_t *n_draft);
/* How many tokens of its last non-empty draft the model confirmed. */
lookup_status lookup_source_accept(lookup_source *source, size_t n_accepted);
/* Cuts the sequence back to its first `n` tokens; `tokens` still holds what the source has seen
 * behind them. ngram-cache takes back what it counted, at a cost by the tokens cut; the other
 * sources begin again with the n tokens. After E_MEMORY or E_TOKEN only `begin` is of use. */
lookup_status lookup_source_truncate(lookup_source *source, const int32_t *tokens, size_t n);
/* How many leading tokens of two sequences of `n` agree. */
size_t lookup_common_prefix(const int32_t *a, const int32_t *b, size_t n);

/* ---------------------------------------------------------------- ngram-adaptive (adaptive_*.c)
 *
 * Drafts as many tokens as pay: for each token it could draft it estimates the probability that the
 * model will say it, from n-grams of many orders in three tiers and from alignments with earlier
 * text, and weighs that against what verifying one more token costs.
 *
 * A group holds what its members share: the static cache (borrowed), the dynamic tier (earlier
 * texts, bounded), what was learned, and the cost curve. A member is a lookup_source for one
 * sequence. Members of one group are used from one thread at a time; groups are independent. */
typedef struct lookup_adaptive lookup_adaptive;

#define LOOKUP_ADAPTIVE_BINS 10
#define LOOKUP_ADAPTIVE_MAX_WIDTHS 256

typedef struct lookup_adaptive_params {
    int32_t draft_max;       /* largest draft, 1..LOOKUP_MAX_DRAFT; 16 at first */
    uint64_t dynamic_bytes;  /* bound of the dynamic tier; 0: none */
} lookup_adaptive_params;

void lookup_adaptive_defaults(lookup_adaptive_params *params);
/* `static_cache` is borrowed (as `tables` of other sources are) and may be NULL; `dynamic`, a dynamic
 * cache of earlier texts, may be NULL and is only read during this call. The group knows the
 * `dense` curve of the documents until lookup_adaptive_set_costs. E_ARGUMENT, E_MEMORY. */
lookup_status lookup_adaptive_new(const lookup_adaptive_params *params, const lookup_static *static_cache, const lookup_table *dynamic, lookup_adaptive **group);
/* Members first, then the group. Takes NULL. */
void lookup_adaptive_free(lookup_adaptive *group);
/* A further member: free it with lookup_source_free. Any number, at any time. */
lookup_status lookup_adaptive_join(lookup_adaptive *group, lookup_source **member);
/* A source with a group of its own, which lookup_source_free frees, too. */
lookup_status lookup_source_ngram_adaptive(const lookup_adaptive_params *params, const lookup_static *static_cache, const lookup_table *dynamic, lookup_source **source);
/* The group of a member; it stays the source's. E_ARGUMENT if `source` is of another kind. */
lookup_status lookup_adaptive_of(lookup_source *source, lookup_adaptive **group);

/* What verifying a batch of widths[i] tokens costs, in plain decodes of one token: widths ascend from
 * 1, costs are finite and positive; linear between two points and on beyond the last. Takes effect
 * with the next draft; nothing that was learned depends on it. E_ARGUMENT. */
lookup_status lookup_adaptive_set_costs(lookup_adaptive *group, const int32_t *widths, const double *costs, size_t n);

/* One draft for every member of the next batch. Member i has tokens[i][0..n[i]) as its history and
 * may draft up to capacity[i] tokens, which go to drafts + i * stride. `n_others` tokens of the batch
 * belong to requests outside (0 if there are none). Every n_drafts[i] is written. The lengths are
 * chosen together: the batch's cost is that of all its tokens. With one member this is
 * lookup_source_draft. After a failure, begin() the members anew. */
lookup_status lookup_adaptive_draft(lookup_adaptive *group, lookup_source *const *members, const int32_t *const *tokens, const size_t *n, const size_t *capacity, size_t n_members, size_t n_others, int32_t *drafts, size_t stride, size_t *n_drafts);
/* Puts what the member's text has beyond the last such call into the dynamic tier now, so that other
 * members draft from it; the text goes on. What tokens[0..n) has beyond the last draft's history is
 * seen first. */
lookup_status lookup_adaptive_remember(lookup_source *member, const int32_t *tokens, size_t n);
/* The member's text has ended: the tokens seen so far go into the dynamic tier, and the context is
 * empty, as after begin() with nothing. (begin() alone forgets the text.) What tokens[0..n) has
 * beyond the last draft's history is seen first. */
lookup_status lookup_adaptive_end(lookup_source *member, const int32_t *tokens, size_t n);
/* Forgets what was learned and the dynamic tier, loaded ones included; begin() the members anew. */
lookup_status lookup_adaptive_reset(lookup_adaptive *group);

/* What drafted tokens were said to be worth and what became of them. A token counts once its
 * predecessors were all accepted; `predicted` sums probabilities in units of 1/65536. */
typedef struct lookup_adaptive_counts {
    uint64_t trials[LOOKUP_ADAPTIVE_BINS];    /* by predicted probability, [0, 0.1) first */
    uint64_t predicted[LOOKUP_ADAPTIVE_BINS];
    uint64_t accepted[LOOKUP_ADAPTIVE_BINS];
    uint64_t drafted_length[LOOKUP_MAX_DRAFT + 1]; /* drafts by length, empty ones included */
    uint64_t dynamic_bytes;    /* held by the dynamic tier now */
    uint64_t context_bytes;    /* held by all members now, their texts included */
    uint64_t learned_tokens;   /* observations so far, loaded ones included */
} lookup_adaptive_counts;

/* Since the group was made or cleared. The mean gap is the mean of |predicted - accepted| / trials
 * over bins with enough trials. */
lookup_status lookup_adaptive_counters(const lookup_adaptive *group, lookup_adaptive_counts *counts);
lookup_status lookup_adaptive_clear_counters(lookup_adaptive *group);

/* What was learned as bytes: versioned, with checksum, the same on every machine.
 * `kind` LOOKUP_STATE_PRIOR: rates and weights only, without what belongs to single tokens (below
 * 64 KB); LOOKUP_STATE_LEARNED: everything learned. `vocabulary` is stored as it is given. */
#define LOOKUP_STATE_PRIOR 0
#define LOOKUP_STATE_LEARNED 1

typedef struct lookup_adaptive_state_info {
    uint32_t version;
    int32_t kind;
    uint64_t vocabulary;      /* fingerprint, 0 if none was given */
    uint64_t learned_tokens;
    uint64_t bytes;
} lookup_adaptive_state_info;

lookup_status lookup_adaptive_state_size(const lookup_adaptive *group, int32_t kind, size_t *size);
lookup_status lookup_adaptive_state_save(const lookup_adaptive *group, int32_t kind, uint64_t vocabulary, void *out, size_t size);
/* Checks all of it. E_MAGIC, E_GEOMETRY (another version), E_TRUNCATED, E_CHECKSUM. */
lookup_status lookup_adaptive_state_check(const void *data, size_t size, lookup_adaptive_state_info *info);
/* Replaces what was learned by a state's; trials beyond `cap` count as `cap` (40 suits a prior that
 * is to be corrected quickly; 0: as saved). Nothing changes on failure. */
lookup_status lookup_adaptive_state_load(lookup_adaptive *group, const void *data, size_t size, int32_t cap);

/* ---------------------------------------------------------------- vocabularies (vocabulary.c)
 *
 * Ids mean nothing without their vocabulary. Files record a fingerprint of all token texts and kinds,
 * which any engine can compute: XXH64 over, for each id in turn, the length of its text in bytes (u32),
 * the text as the model file spells it, and one byte: 1 for an unused token, else 0. Other kinds take no
 * part because they are not told alike everywhere: llama.cpp makes some tokens control tokens by their
 * text, a tokenizer.json does not name byte tokens. */
#define LOOKUP_TOKEN_TEXT 0
#define LOOKUP_TOKEN_BYTE 1
#define LOOKUP_TOKEN_UNUSED 2

/* The same, fed in parts. An all-zero state is ready for use (seed 0). */
typedef struct lookup_xxh64_state {
    uint64_t lanes[4];
    uint64_t total;
    unsigned char rest[32];
} lookup_xxh64_state;

/* A fingerprint in the making. All-zero is ready for use. */
typedef struct lookup_vocabulary {
    lookup_xxh64_state state;
    uint64_t n_tokens;
} lookup_vocabulary;

/* The next id's text (`size` bytes, need not end with 0) and kind. */
lookup_status lookup_vocabulary_add(lookup_vocabulary *vocabulary, const char *text, size_t size, int32_t kind);
/* The next `n` ids': texts one behind the other, ends[i] where text i ends. */
lookup_status lookup_vocabulary_add_many(lookup_vocabulary *vocabulary, const char *texts, const uint64_t *ends, const uint8_t *kinds, size_t n);
/* The fingerprint of what was added so far; never 0, which stands for an unknown one. */
uint64_t lookup_vocabulary_fingerprint(const lookup_vocabulary *vocabulary);

/* ---------------------------------------------------------------- what batches cost (cost_meter.c)
 *
 * Collects widths and seconds of an engine's batches; medians, so that pauses and noise do not count. */
typedef struct lookup_cost_meter lookup_cost_meter;

lookup_status lookup_cost_meter_new(lookup_cost_meter **meter);
void lookup_cost_meter_free(lookup_cost_meter *meter);
/* A batch of `width` tokens took so long. Ignored: widths below 1, further widths when
 * LOOKUP_ADAPTIVE_MAX_WIDTHS - 2 of them are known, times that are not above 0. */
lookup_status lookup_cost_meter_observe(lookup_cost_meter *meter, int32_t width, double seconds);
/* How the curve goes on where nothing was measured: not at all (the measured widths alone, of which
 * there may be none), hoping that further tokens are cheap (what to draft by, so that widths get
 * tried), or taking each to cost as much as the first (what a draft may be trusted not to exceed). */
#define LOOKUP_COST_MEASURED 0
#define LOOKUP_COST_HOPED 1
#define LOOKUP_COST_BOUND 2
/* The curve as lookup_adaptive_set_costs takes it: costs in batches of one token, which never fall.
 * `widths` and `costs` hold LOOKUP_ADAPTIVE_MAX_WIDTHS. */
lookup_status lookup_cost_meter_curve(const lookup_cost_meter *meter, int32_t kind, int32_t *widths, double *costs, size_t *n);
/* Seconds of a batch of one token, 0 as long as they are not known. */
double lookup_cost_meter_single(const lookup_cost_meter *meter);

/* ---------------------------------------------------------------- a drafter for an engine (drafter.c)
 *
 * Drafts for all sequences (slots) of an engine, with the chain of sources asked for by name. It follows
 * each sequence's text whatever the engine does with it, learns from it, measures what batches cost
 * and drafts what pays. One object for all sequences; one thread at a time.
 *
 * A step:  lookup_drafter_follow for every sequence in the batch,  lookup_drafter_draft once,
 * the engine's decode,  lookup_drafter_decoded,  lookup_drafter_accept for every sequence. */
typedef struct lookup_drafter lookup_drafter;

#define LOOKUP_NO_TOKEN -1

typedef struct lookup_drafter_params {
    const char *sources;     /* names, asked in turn: "ngram-adaptive" at first; "ngram-cache,ngram-suffix" */
    int32_t n_sequences;     /* 1 at first */
    int32_t draft_max;       /* largest draft, 1..LOOKUP_MAX_DRAFT; 16 at first */
    int32_t n_vocab;         /* ids from here on are never drafted; 0 at first: any */
    int32_t learn;           /* 1 at first: texts that end are learned; 0: never */
    int32_t measure;         /* 1 at first: draft by what lookup_drafter_decoded measures; 0: by
                              * the dense example or lookup_adaptive_set_costs, without a budget */
    uint64_t dynamic_bytes;  /* bound of ngram-adaptive's dynamic tier, and of what `dynamic` may
                              * grow to by learning; 256 MiB at first */
} lookup_drafter_params;

void lookup_drafter_defaults(lookup_drafter_params *params);
/* `cache` (from lookup_file_static, or NULL) and `dynamic` (from lookup_table_new or lookup_file_table,
 * or NULL) are borrowed; the drafter alone changes `dynamic` from now on, and indexes it if it is
 * not. E_ARGUMENT names an unknown source in `error`. */
lookup_status lookup_drafter_new(const lookup_drafter_params *params, const lookup_static *cache, lookup_table *dynamic, lookup_drafter **drafter, lookup_error *error);
void lookup_drafter_free(lookup_drafter *drafter);
/* A sequence's text is tokens[0..n), then `last` (LOOKUP_NO_TOKEN: nothing more). It is compared with
 * what is known of it: what is new is added, what was taken back is forgotten, from the middle, too (a
 * context shift); a text that has ended is learned first. Costs a comparison of the common part. */
lookup_status lookup_drafter_follow(lookup_drafter *drafter, int32_t sequence, const int32_t *tokens, size_t n, int32_t last);
/* Drafts for sequences[0..n) of the next batch, each once, of up to capacity[i] tokens, written to
 * drafts + i * stride; n_drafts[i] may be 0. `n_others` further tokens of the batch belong to requests
 * without drafts (0 if there are none). ngram-adaptive chooses all lengths together. After a failure
 * all n_drafts are 0 and the drafter goes on with the next call. */
lookup_status lookup_drafter_draft(lookup_drafter *drafter, const int32_t *sequences, const size_t *capacity, size_t n, size_t n_others, int32_t *drafts, size_t stride, size_t *n_drafts);
/* The batch of the last draft, `width` tokens, took so long. A batch of another width than was
 * drafted for is ignored: it held something else. */
lookup_status lookup_drafter_decoded(lookup_drafter *drafter, size_t width, double seconds);
/* How much of its last draft a sequence accepted. These tokens are known to be its text from now on,
 * so that what an answer ends with is not lost. More than was drafted counts as all. */
lookup_status lookup_drafter_accept(lookup_drafter *drafter, int32_t sequence, size_t n_accepted);
/* Learns what the sequences' texts have that was not learned yet: before what was learned is saved.
 * Done by itself whenever some sequence begins another text. */
lookup_status lookup_drafter_learn(lookup_drafter *drafter);
/* Forgets a sequence's text, without learning it. */
lookup_status lookup_drafter_forget(lookup_drafter *drafter, int32_t sequence);
/* The group behind ngram-adaptive, for its costs, counters and state, or NULL without that source;
 * it stays the drafter's. */
lookup_adaptive *lookup_drafter_group(lookup_drafter *drafter);
/* The meter that lookup_drafter_decoded feeds; it stays the drafter's. */
const lookup_cost_meter *lookup_drafter_meter(const lookup_drafter *drafter);

/* Counted since lookup_drafter_new. */
typedef struct lookup_drafter_counts {
    uint64_t n_steps;          /* calls of lookup_drafter_draft */
    uint64_t n_asked;          /* sequences in them */
    uint64_t n_drafts;         /* drafts that were not empty */
    uint64_t n_drafted;        /* their tokens */
    uint64_t n_accepted;
    uint64_t n_learned;        /* tokens of texts learned */
    uint64_t n_cut;            /* times that a text lost tokens */
    uint64_t n_failed;         /* steps that ended without drafts because a source failed */
    uint64_t held_back;        /* tokens not drafted because drafts had not paid of late */
} lookup_drafter_counts;

/* Of one sequence, or of all with sequence -1 (n_steps and n_failed are known of all only). */
lookup_status lookup_drafter_counters(const lookup_drafter *drafter, int32_t sequence, lookup_drafter_counts *counts);

/* ---------------------------------------------------------------- files (files/; LOOKUP_FILES=OFF leaves
 * them out, and the library does no I/O at all)
 *
 * The calls here read and write files by path (UTF-8 on Windows). They fill `error` when they fail.
 * E_FILE: the system refused, and says why. */
#define LOOKUP_FORMAT_LEGACY 0
#define LOOKUP_FORMAT_CONSTMAP 1
#define LOOKUP_FORMAT_CONSTMAP2 2

/* An open cache file: const calls may come from any number of threads at the same time. */
typedef struct lookup_file lookup_file;

#define LOOKUP_NAME_SIZE 128

typedef struct lookup_file_info {
    int32_t format;
    int32_t has_meta;          /* 0: another tool's file, which says nothing of what follows */
    uint64_t bytes;
    uint64_t vocabulary;       /* lookup_vocabulary_fingerprint, 0 if not recorded */
    int32_t n_vocab;           /* tokens of the vocabulary, 0 if not recorded */
    char kind[16];             /* "static", "dynamic" or "context" */
    char tokenizer[LOOKUP_NAME_SIZE];   /* its name, cut to fit; "" if not recorded */
    char fingerprint[40];      /* over all that decides which ids a text gets (Python alone computes
                                * it); "" if not recorded */
    uint64_t n_ngrams, n_pairs;         /* 0 if not recorded */
} lookup_file_info;

/* Opens a cache file of any format by what it holds: maps a constmap and reads its headers, which
 * takes no longer for a large file; reads and checks all of a legacy file, and its sidecar. What it
 * reads later is safe whatever the file holds, as long as nobody cuts it meanwhile (SIGBUS, as with
 * any mapped file): replace files, as all our tools do, and never write into them. */
lookup_status lookup_file_open(const char *path, lookup_file **file, lookup_error *error);
/* After everything that was made from it. */
void lookup_file_close(lookup_file *file);
lookup_status lookup_file_get_info(const lookup_file *file, lookup_file_info *info);
/* Whether a file fits a vocabulary of `n_vocab` tokens. OTHER fills `error` and is no failure.
 * UNKNOWN: it does not say; lookup_tools can tell from the model's GGUF. */
#define LOOKUP_VOCABULARY_SAME 0
#define LOOKUP_VOCABULARY_OTHER 1
#define LOOKUP_VOCABULARY_UNKNOWN 2
lookup_status lookup_file_check_vocabulary(const lookup_file *file, uint64_t vocabulary, int32_t n_vocab, int32_t *verdict, lookup_error *error);
/* The file as a static cache, which lives as long as the file. A legacy file's 2-grams are laid out in
 * memory at the first call (not from two threads at once); constmaps are read in place. */
lookup_status lookup_file_static(lookup_file *file, const lookup_static **cache, lookup_error *error);
/* The file's n-grams as a new table, the caller's: a dynamic cache. O(size). A constmap's keys are read
 * from its key records (constmap2) or found by walking it, a few seconds for hundreds of MB. E_KEYS
 * if they cannot all be found. */
lookup_status lookup_file_table(const lookup_file *file, lookup_table **table, lookup_error *error);
/* Writes a table as a legacy file, which every engine reads, and its sidecar with `vocabulary`, `n_vocab`
 * and `tokenizer` (a name, or NULL). Replaces the file as a whole or not at all. */
lookup_status lookup_table_save(const lookup_table *table, const char *path, uint64_t vocabulary, int32_t n_vocab, const char *tokenizer, lookup_error *error);
/* What ngram-adaptive learned, saved (LOOKUP_STATE_*) and loaded by path; `cap` as in
 * lookup_adaptive_state_load. A state of another vocabulary is E_ARGUMENT; 0 fits all. */
lookup_status lookup_adaptive_save(const lookup_adaptive *group, int32_t kind, uint64_t vocabulary, const char *path, lookup_error *error);
lookup_status lookup_adaptive_load(lookup_adaptive *group, uint64_t vocabulary, int32_t cap, const char *path, lookup_error *error);
