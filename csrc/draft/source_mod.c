/* The `ngram-mod` source (drafting.md, section 3): one pool of 2^22 places for all sequences, each
 * holding the token that last followed whatever n-gram hashes there.
 *
 * The pool is kept as a table of its occupied places: a short text needs kilobytes, not 16 MB, and
 * stays in the processor's caches; at full size it is the plain array again. Each place remembers
 * the sequence that wrote it. That makes emptying free: the rule empties the pool and enters the
 * present text anew from its start, which leaves exactly the places that this sequence has written,
 * so raising the oldest sequence that counts does it, however long the text. */
#include "source_grams.h"

#define POOL_BITS 22
#define FIRST_BITS 12
#define FACTOR 6364136223846793005u
#define LAG 32          /* positions enter the pool in batches of more than this */
#define LOW_ROUNDS 5    /* of acceptance below a quarter empty the pool */
#define TOKEN_BITS 31
#define LAST_SEQUENCE 1023u

typedef struct {
    lookup_source base;
    size_t n, n_max, n_min;
    window gram;
    place entered, pattern;
    uint64_t *pool;        /* 1 bit | sequence 10 | place 22 | token 31; 0 where free */
    uint32_t bits;         /* log2 of its size */
    uint32_t occupied;     /* entries, forgotten ones included */
    uint32_t sequence;     /* the present one, 1..LAST_SEQUENCE */
    uint32_t oldest;       /* entries of earlier sequences are forgotten */
    uint32_t used, used_here; /* entries that count; those the present sequence wrote */
    size_t first, next;    /* the present sequence's n-grams [first, next) are in the pool */
    size_t seen;
    size_t n_drafted;      /* the last draft, before truncation */
    int low;               /* low rounds in a row */
    bool refill;           /* emptied, and the next draft enters the text anew */
    uint64_t resets_low, resets_full;
} mod_source;

void lookup_ngram_mod_defaults(lookup_ngram_mod_params *p) {
    if (p != NULL) *p = (lookup_ngram_mod_params){.n_match = 24, .n_max = 64, .n_min = 48};
}

INLINE uint32_t sequence_of(uint64_t entry) { return (uint32_t)(entry >> (POOL_BITS + TOKEN_BITS)); }
INLINE uint32_t place_of(uint64_t entry) { return (uint32_t)(entry >> TOKEN_BITS) & (LOOKUP_MOD_POOL - 1); }
INLINE int32_t token_of(uint64_t entry) { return (int32_t)(entry & INT32_MAX); }

/* Multiplying by an odd number permutes the places, so that at full size each has its own home. */
INLINE uint32_t home_of(const mod_source *s, uint32_t at) {
    return ((at * 0x9E3779B1u) & (LOOKUP_MOD_POOL - 1)) >> (POOL_BITS - s->bits);
}

/* The entry of pool place `at`, or the free one where it would stand. */
INLINE uint64_t *entry_of(const mod_source *s, uint32_t at) {
    uint32_t i = home_of(s, at), mask = (1u << s->bits) - 1;
    while (s->pool[i] != 0 && place_of(s->pool[i]) != at) i = (i + 1) & mask;
    return &s->pool[i];
}

/* Gives an entry its place in the table being rebuilt, and whatever it drives out. */
static void settle(mod_source *s, uint64_t entry) {
    uint32_t mask = (1u << s->bits) - 1;
    while (entry != 0) {
        entry &= ~UNPLACED;
        uint32_t i = home_of(s, place_of(entry));
        while (s->pool[i] != 0 && !(s->pool[i] & UNPLACED)) i = (i + 1) & mask;
        uint64_t driven_out = s->pool[i];
        s->pool[i] = entry;
        entry = driven_out;
    }
}

/* Drops the forgotten entries and spreads the others over the first 2^bits places; `size` of them
 * hold entries now. */
static void rebuild(mod_source *s, size_t size, uint32_t bits) {
    s->bits = bits;
    s->occupied = s->used;
    for (size_t i = 0; i < size; ++i)
        s->pool[i] = sequence_of(s->pool[i]) < s->oldest ? 0 : s->pool[i] | UNPLACED;
    for (size_t i = 0; i < size; ++i) {
        uint64_t entry = s->pool[i];
        if (!(entry & UNPLACED)) continue;
        s->pool[i] = 0;
        settle(s, entry);
    }
}

static lookup_status grow(mod_source *s) {
    size_t size = (size_t)1 << s->bits;
    uint64_t *grown = lookup_realloc(s->pool, 2 * size, sizeof *grown);
    CHECK(grown != NULL, LOOKUP_E_MEMORY);
    memset(grown + size, 0, size * sizeof *grown);
    s->pool = grown;
    rebuild(s, size, s->bits + 1);
    return LOOKUP_OK;
}

static lookup_status reserve(mod_source *s, uint32_t n) {
    while (UNLIKELY(s->bits < POOL_BITS && s->occupied + n > (1u << s->bits) / 2)) {
        if (s->used > s->occupied / 2) TRY(grow(s));
        else rebuild(s, (size_t)1 << s->bits, s->bits);
    }
    return LOOKUP_OK;
}

INLINE void put(mod_source *s, uint32_t at, int32_t token) {
    uint64_t *entry = entry_of(s, at);
    uint32_t writer = sequence_of(*entry); /* 0 where free */
    s->occupied += *entry == 0;
    s->used += writer < s->oldest;
    s->used_here += writer != s->sequence;
    *entry = ((uint64_t)s->sequence << (POOL_BITS + TOKEN_BITS)) | ((uint64_t)at << TOKEN_BITS) | (uint32_t)token;
}

/* Enters the n-grams at [next, end), hashing a block before touching the pool. */
static lookup_status enter(mod_source *s, const int32_t *tokens, size_t end) {
    uint32_t places[LAG];
    while (s->next < end) {
        size_t from = s->next, n = end - from < LAG ? end - from : LAG;
        TRY(reserve(s, LAG));
        for (size_t i = 0; i < n; ++i) {
            places[i] = (uint32_t)place_move(&s->gram, &s->entered, tokens, from + i) & (LOOKUP_MOD_POOL - 1);
            PREFETCH(&s->pool[home_of(s, places[i])]);
        }
        for (size_t i = 0; i < n; ++i) put(s, places[i], tokens[from + i + s->n]);
        s->next = from + n;
    }
    s->next = end; /* as llama.cpp: it may step back by one */
    return LOOKUP_OK;
}

/* Numbers run out after a thousand prompts: then all earlier sequences become one. */
static void renumber(mod_source *s) {
    const uint64_t rest = ((uint64_t)1 << (POOL_BITS + TOKEN_BITS)) - 1, one = rest + 1;
    rebuild(s, (size_t)1 << s->bits, s->bits);
    for (size_t i = 0; i < (size_t)1 << s->bits; ++i)
        if (s->pool[i] != 0) s->pool[i] = (s->pool[i] & rest) | one;
    s->sequence = s->oldest = 1;
}

static void start_sequence(mod_source *s) {
    if (s->sequence == LAST_SEQUENCE) renumber(s);
    s->sequence++;
    s->used_here = 0;
}

/* Only what the present sequence has written counts from now on. */
static void forget_others(mod_source *s) {
    s->oldest = s->sequence;
    s->used = s->used_here;
}

static lookup_status mod_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    mod_source *s = (mod_source *)source;
    start_sequence(s);
    if (s->refill) forget_others(s);
    s->refill = false;
    s->first = s->next = s->seen = s->n_drafted = 0;
    s->entered.set = s->pattern.set = false;
    TRY(history_extend(&s->seen, tokens, n));
    if (n < s->n) return LOOKUP_OK;
    TRY(enter(s, tokens, n - s->n));
    if (s->used <= LOOKUP_MOD_POOL / 4) return LOOKUP_OK;
    start_sequence(s);
    forget_others(s);
    s->first = s->next; /* the rule empties the pool after entering the prompt */
    s->resets_full++;
    return LOOKUP_OK;
}

/* Brings the pool up to date for c tokens before the last one. */
static lookup_status catch_up(mod_source *s, const int32_t *tokens, size_t c) {
    if (c <= LAG || (!s->refill && s->next + LAG >= c)) return LOOKUP_OK;
    if (s->refill && s->first > 0) {
        start_sequence(s);
        s->first = s->next = 0;
        s->entered.set = false;
    }
    if (s->refill) forget_others(s);
    s->refill = false;
    return enter(s, tokens, c - s->n);
}

/* Follows the pool from the last n tokens on; how many tokens it gives, 0 if too few. */
static size_t follow(mod_source *s, const int32_t *tokens, size_t n, int32_t *out) {
    const int32_t *start = tokens + (n - s->n);
    uint64_t h = place_move(&s->gram, &s->pattern, tokens, n - s->n);
    for (size_t i = 0; i < s->n_max; ++i) {
        uint64_t entry = *entry_of(s, (uint32_t)h & (LOOKUP_MOD_POOL - 1));
        if (sequence_of(entry) < s->oldest) return i < s->n_min ? 0 : i;
        out[i] = token_of(entry);
        h = window_next(&s->gram, h, i < s->n ? start[i] : out[i - s->n], out[i]);
    }
    return s->n_max;
}

static lookup_status mod_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                               uint8_t *tiers, size_t capacity, size_t *n_draft) {
    mod_source *s = (mod_source *)source;
    int32_t out[LOOKUP_MAX_DRAFT];
    TRY(history_extend(&s->seen, tokens, n));
    s->n_drafted = 0;
    if (n <= s->n) return LOOKUP_OK;
    TRY(catch_up(s, tokens, n - 1));
    if (s->refill) return LOOKUP_OK; /* still empty */
    s->n_drafted = follow(s, tokens, n, out);
    give_draft(out, s->n_drafted, draft, tiers, capacity, n_draft);
    return LOOKUP_OK;
}

static lookup_status mod_accept(lookup_source *source, size_t n_accepted) {
    mod_source *s = (mod_source *)source;
    CHECK(n_accepted <= LOOKUP_MAX_DRAFT, LOOKUP_E_ARGUMENT);
    if (s->n_drafted == 0) return LOOKUP_OK;
    s->low = 4 * n_accepted < s->n_drafted ? s->low + 1 : 0;
    if (s->low < LOW_ROUNDS) return LOOKUP_OK;
    s->low = 0;
    s->refill = true;
    s->resets_low++;
    return LOOKUP_OK;
}

static void mod_free(lookup_source *source) {
    mod_source *s = (mod_source *)source;
    lookup_free(s->pool);
    lookup_free(s);
}

static const source_calls CALLS = {mod_free, mod_begin, mod_draft, mod_accept, NULL};

lookup_status lookup_source_ngram_mod(const lookup_ngram_mod_params *params, lookup_source **source) {
    CHECK(params != NULL && source != NULL && within(params->n_match, 1, LOOKUP_MAX_GRAM), LOOKUP_E_ARGUMENT);
    CHECK(within(params->n_max, 1, LOOKUP_MAX_DRAFT) && within(params->n_min, 0, LOOKUP_MAX_DRAFT), LOOKUP_E_ARGUMENT);
    mod_source *s = lookup_alloc(1, sizeof *s);
    CHECK(s != NULL, LOOKUP_E_MEMORY);
    s->base.calls = &CALLS;
    s->n = (size_t)params->n_match;
    s->n_max = (size_t)params->n_max;
    s->n_min = (size_t)params->n_min;
    s->gram = window_of(FACTOR, s->n);
    s->bits = FIRST_BITS;
    s->sequence = s->oldest = 1;
    s->pool = lookup_alloc((size_t)1 << s->bits, sizeof *s->pool);
    if (s->pool == NULL) {
        mod_free(&s->base);
        return LOOKUP_E_MEMORY;
    }
    *source = &s->base;
    return LOOKUP_OK;
}

lookup_status lookup_ngram_mod_counters(const lookup_source *source, lookup_ngram_mod_counts *counts) {
    CHECK(source != NULL && counts != NULL && source->calls == &CALLS, LOOKUP_E_ARGUMENT);
    const mod_source *s = (const mod_source *)source;
    uint64_t used = s->refill ? 0 : s->used;
    *counts = (lookup_ngram_mod_counts){used, s->resets_low, s->resets_full};
    return LOOKUP_OK;
}
