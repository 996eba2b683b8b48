/* The `ngram-map-k` and `ngram-map-k4v` sources (drafting.md, section 3): keys are n-grams that
 * have matched before; what follows the match is drafted (k), or the most frequent of up to four
 * continuations seen so far (k4v).
 *
 * The rules search backwards only over positions not yet in the position table, so that part is
 * incremental as it stands. Two more indexes replace the scans that would grow with the text: the
 * keys by their tokens, and, for k4v, all positions of an n-gram as a ring in ascending order, so
 * that counting a key's occurrences visits the occurrences alone.
 *
 * Where llama.cpp differs from the default, and `compat` follows it:
 *  - k4v picks a value but copies the draft from behind the match, where another value may stand
 *    (llama.cpp PR #28431). The default copies the tokens of the value it picked.
 *  - k4v counts the occurrence at the match again at the key's next match. The default counts every
 *    occurrence once.
 * Kept in both: the last n+m+1 positions of a prompt never match; a key whose draft was wholly rejected drafts no more;
 * map-k has no use for min_hits. */
#include "source_grams.h"

#define TABLE_SIZE 262144u
#define VALUES 4
#define BLOCK 32u

typedef struct {
    uint32_t idx; /* where its tokens stand; 0: free */
    uint16_t num;
    uint16_t n_accepted;
} value;

typedef struct {
    uint32_t stat_idx; /* occurrences before it are counted, */
    uint16_t num;
    bool counted;      /* and the one at it */
    value values[VALUES];
} key;

typedef struct {
    lookup_source base;
    size_t n, m;
    int32_t min_hits;
    bool k4v, compat;
    window gram;
    place pattern, entered;
    uint32_t *table;      /* positions by the n-gram's hash; first come, first kept */
    uint64_t marks[TABLE_SIZE / 64]; /* its taken places: most look-ups need no more */
    size_t last_idx;      /* the highest position the rules have entered */
    size_t begin_len, checked_len, seen;
    key *keys;
    uint32_t *key_at;     /* where a key's n tokens stand */
    size_t n_keys, key_room, key_at_room;
    slots key_index;      /* item: key number + 1 */
    uint32_t *waiting;    /* keys whose tokens the present text has not reached */
    size_t n_waiting, waiting_room;
    slots rings;          /* k4v. item: an n-gram's last position + 1 */
    uint32_t *ring;       /* the n-gram's next position; after the last one the first */
    size_t ring_room, n_ringed;
    place ringed;
    bool drafted;         /* by keys[last_key].values[last_value] */
    size_t last_key, last_value;
} map_source;

/* One draft call's view of the text. */
typedef struct {
    const int32_t *tokens;
    size_t c;            /* tokens before the last one */
    const int32_t *gram; /* the last n tokens */
    uint64_t hash;
} view;

void lookup_ngram_map_defaults(lookup_ngram_map_params *p) {
    if (p != NULL) *p = (lookup_ngram_map_params){.size_n = 12, .size_m = 48, .min_hits = 1};
}

INLINE size_t minus(size_t a, size_t b) { return a > b ? a - b : 0; }
INLINE size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* ---- the position table */

INLINE uint32_t table_place(uint64_t hash) { return (uint32_t)hash % TABLE_SIZE; }
INLINE bool marked(const map_source *s, uint32_t at) { return (s->marks[at / 64] >> (at % 64)) & 1; }
INLINE void flip_mark(map_source *s, uint32_t at) { s->marks[at / 64] ^= (uint64_t)1 << (at % 64); }

/* The highest position in (floor, top] where the n-gram stands, or 0. */
static size_t scan(const map_source *s, const view *v, size_t top, size_t floor) {
    for (size_t j = top; j > floor; --j)
        if (same_tokens(v->tokens + j, v->gram, s->n)) return j;
    return 0;
}

static size_t find_match(const map_source *s, const view *v) {
    size_t reach = s->n + s->m + 1, top = v->c - reach;
    size_t p = marked(s, table_place(v->hash)) ? s->table[table_place(v->hash)] : 0;
    if (p != 0 && p < top && same_tokens(v->tokens + p, v->gram, s->n)) return p;
    size_t match = scan(s, v, minus(s->begin_len, reach), s->last_idx);
    return match ? match : scan(s, v, top, larger(s->begin_len, s->last_idx));
}

/* Enters (floor, top] from the top down into free places; `hash` is top's. */
static void enter(map_source *s, const int32_t *tokens, size_t top, size_t floor, uint64_t hash) {
    for (size_t j = top; j > floor; --j) {
        uint32_t at = table_place(hash);
        if (!marked(s, at)) {
            s->table[at] = (uint32_t)j;
            flip_mark(s, at);
        }
        hash = window_back(&s->gram, hash, tokens[j - 1], tokens[j - 1 + s->n]);
    }
}

static void enter_new(map_source *s, const view *v) {
    size_t reach = s->n + s->m + 1, top = v->c - reach, prompt_top = minus(s->begin_len, reach);
    if (prompt_top > s->last_idx)
        enter(s, v->tokens, prompt_top, s->last_idx, window_hash(&s->gram, v->tokens + prompt_top));
    size_t floor = larger(s->begin_len, s->last_idx);
    if (top > floor) enter(s, v->tokens, top, floor, place_move(&s->gram, &s->entered, v->tokens, top));
    s->last_idx = larger(s->last_idx, top);
}

/* ---- keys */

/* The place of the key with these tokens, or the free one where it would stand. */
INLINE uint64_t *find_key(const map_source *s, const int32_t *tokens, const int32_t *gram, uint32_t tag) {
    uint32_t i = slots_home(&s->key_index, tag);
    for (; s->key_index.at[i] != 0; i = slots_after(&s->key_index, i)) {
        uint64_t slot = s->key_index.at[i];
        if ((uint32_t)(slot >> 32) == tag && same_tokens(tokens + s->key_at[(uint32_t)slot - 1], gram, s->n)) break;
    }
    return &s->key_index.at[i];
}

/* Makes a key findable. After begin() two may stand for the same tokens: the first in the list wins. */
static lookup_status index_key(map_source *s, const int32_t *tokens, uint32_t number) {
    TRY(slots_reserve(&s->key_index, 1));
    const int32_t *gram = tokens + s->key_at[number];
    uint32_t tag = tag_of(window_hash(&s->gram, gram));
    uint64_t *slot = find_key(s, tokens, gram, tag);
    s->key_index.used += *slot == 0;
    if (*slot == 0 || (uint32_t)*slot > number + 1) *slot = slot_of(tag, number + 1);
    return LOOKUP_OK;
}

/* Indexes the keys that the first c tokens hold; the others go on waiting. */
static lookup_status index_waiting(map_source *s, const int32_t *tokens, size_t c) {
    for (size_t i = 0; i < s->n_waiting;) {
        if (s->key_at[s->waiting[i]] + s->n > c) {
            ++i;
            continue;
        }
        TRY(index_key(s, tokens, s->waiting[i]));
        s->waiting[i] = s->waiting[--s->n_waiting];
    }
    return LOOKUP_OK;
}

/* The key of the present n-gram, made at `match` if need be. */
static lookup_status take_key(map_source *s, const view *v, size_t match, size_t *number) {
    TRY(slots_reserve(&s->key_index, 1));
    uint32_t tag = tag_of(v->hash);
    uint64_t *slot = find_key(s, v->tokens, v->gram, tag);
    if (*slot == 0) {
        GROW_ARRAY(s->keys, s->key_room, s->n_keys + 1);
        GROW_ARRAY(s->key_at, s->key_at_room, s->n_keys + 1);
        key fresh = {0};
        for (int i = 0; i < VALUES; ++i) fresh.values[i].n_accepted = (uint16_t)s->m;
        s->keys[s->n_keys] = fresh;
        s->key_at[s->n_keys++] = (uint32_t)match;
        s->key_index.used++;
        *slot = slot_of(tag, (uint32_t)s->n_keys);
    }
    *number = (uint32_t)*slot - 1;
    return LOOKUP_OK;
}

/* ---- continuations (k4v) */

INLINE uint64_t *find_ring(const map_source *s, const int32_t *tokens, const int32_t *gram, uint32_t tag) {
    uint32_t i = slots_home(&s->rings, tag);
    for (; s->rings.at[i] != 0; i = slots_after(&s->rings, i)) {
        uint64_t slot = s->rings.at[i];
        if ((uint32_t)(slot >> 32) == tag && same_tokens(tokens + (uint32_t)slot - 1, gram, s->n)) break;
    }
    return &s->rings.at[i];
}

INLINE void link_position(map_source *s, const int32_t *tokens, uint32_t at, uint32_t tag) {
    uint64_t *slot = find_ring(s, tokens, tokens + at, tag);
    uint32_t before = (uint32_t)*slot - 1;
    s->ring[at] = *slot ? s->ring[before] : at;
    if (*slot) s->ring[before] = at;
    s->rings.used += *slot == 0;
    *slot = slot_of(tag, at + 1);
}

/* Links the positions up to `top` into their n-grams' rings, hashing a block before looking it up. */
static lookup_status extend_rings(map_source *s, const int32_t *tokens, size_t top) {
    GROW_ARRAY(s->ring, s->ring_room, top + 1);
    while (s->n_ringed <= top) {
        uint32_t tags[BLOCK], n = (uint32_t)(top + 1 - s->n_ringed < BLOCK ? top + 1 - s->n_ringed : BLOCK);
        TRY(slots_reserve(&s->rings, BLOCK));
        for (uint32_t i = 0; i < n; ++i) {
            tags[i] = tag_of(place_move(&s->gram, &s->ringed, tokens, s->n_ringed + i));
            PREFETCH(&s->rings.at[slots_home(&s->rings, tags[i])]);
        }
        for (uint32_t i = 0; i < n; ++i) link_position(s, tokens, (uint32_t)s->n_ringed + i, tags[i]);
        s->n_ringed += n;
    }
    return LOOKUP_OK;
}

/* Counts the m tokens at `at` as one more occurrence of their value; a fifth value is not kept. */
static void count_value(const map_source *s, const view *v, key *k, uint32_t at) {
    for (int i = 0; i < VALUES; ++i) {
        value *a = &k->values[i];
        if (a->idx == 0) *a = (value){.idx = at, .num = 0, .n_accepted = (uint16_t)s->m};
        else if (a->idx + s->m > v->c || !same_tokens(v->tokens + a->idx, v->tokens + at, s->m)) continue;
        if (a->num < LOOKUP_MAX_HITS) a->num++;
        return;
    }
}

/* Counts what follows each occurrence of the n-gram in [stat_idx, match] that is not counted yet. */
static lookup_status count_values(map_source *s, const view *v, key *k, size_t match) {
    TRY(extend_rings(s, v->tokens, match));
    uint32_t last = (uint32_t)*find_ring(s, v->tokens, v->gram, tag_of(v->hash)) - 1;
    uint32_t i = s->ring[last];
    if (k->stat_idx <= match && same_tokens(v->tokens + k->stat_idx, v->gram, s->n)) {
        i = k->stat_idx;
        if (k->counted && i == last) return LOOKUP_OK;
        if (k->counted) i = s->ring[i];
    }
    while (i < k->stat_idx && i != last) i = s->ring[i]; /* only where begin() changed the text */
    for (; i >= k->stat_idx && i <= match; i = s->ring[i]) {
        count_value(s, v, k, i + (uint32_t)s->n);
        if (i == last) break;
    }
    k->stat_idx = (uint32_t)match;
    k->counted = !s->compat;
    return LOOKUP_OK;
}

/* The value to draft, or VALUES if none stands out. */
static size_t choose(const key *k) {
    size_t best = 0;
    int32_t sum = 0;
    for (size_t i = 0; i < VALUES; ++i) {
        sum += k->values[i].num;
        if (k->values[i].num > k->values[best].num) best = i;
    }
    int32_t others = sum - k->values[best].num;
    return others > 0 && k->values[best].num < 2 * others ? VALUES : best;
}

/* ---- the calls */

static lookup_status draft_key(map_source *s, const view *v, size_t match, size_t *from, size_t *length) {
    size_t number, chosen = 0;
    TRY(take_key(s, v, match, &number));
    key *k = &s->keys[number];
    if (k->num < LOOKUP_MAX_HITS) k->num++;
    *from = match + s->n;
    if (s->k4v) {
        if (k->num < s->min_hits) return LOOKUP_OK;
        TRY(count_values(s, v, k, match));
        chosen = choose(k);
        if (chosen == VALUES) return LOOKUP_OK;
        if (!s->compat) *from = k->values[chosen].idx;
    }
    *length = k->values[chosen].n_accepted;
    if (*length > minus(v->c, *from)) *length = minus(v->c, *from);
    s->drafted = true;
    s->last_key = number;
    s->last_value = chosen;
    return LOOKUP_OK;
}

static lookup_status map_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                               uint8_t *tiers, size_t capacity, size_t *n_draft) {
    map_source *s = (map_source *)source;
    TRY(history_extend(&s->seen, tokens, n));
    s->drafted = false;
    if (n < 2 * s->n + s->m + 1) return LOOKUP_OK;
    view v = {.tokens = tokens, .c = n - 1, .gram = tokens + (n - s->n)};
    v.hash = place_move(&s->gram, &s->pattern, tokens, n - s->n);
    s->checked_len = v.c;
    if (UNLIKELY(s->n_waiting > 0)) TRY(index_waiting(s, tokens, v.c));
    size_t match = find_match(s, &v), from = 0, length = 0;
    enter_new(s, &v);
    if (match == 0) return LOOKUP_OK;
    TRY(draft_key(s, &v, match, &from, &length));
    give_draft(tokens + from, length, draft, tiers, capacity, n_draft);
    return LOOKUP_OK;
}

static lookup_status map_accept(lookup_source *source, size_t n_accepted) {
    map_source *s = (map_source *)source;
    CHECK(n_accepted <= LOOKUP_MAX_DRAFT, LOOKUP_E_ARGUMENT);
    size_t kept = n_accepted < s->m ? n_accepted : s->m; /* a draft is at most m long anyway */
    if (s->drafted) s->keys[s->last_key].values[s->last_value].n_accepted = (uint16_t)kept;
    return LOOKUP_OK;
}

/* Drops the values at or behind `cut`; false if none is left. */
static bool trim_values(const map_source *s, key *k, size_t cut) {
    size_t kept = 0;
    for (size_t i = 0; i < VALUES; ++i)
        if (k->values[i].idx != 0 && k->values[i].idx < cut) k->values[kept++] = k->values[i];
    for (size_t i = kept; i < VALUES; ++i) k->values[i] = (value){.n_accepted = (uint16_t)s->m};
    return kept > 0;
}

INLINE uint32_t lowest_bit(uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return (uint32_t)__builtin_ctzll(word);
#else
    uint32_t bit = 0;
    for (; (word & 1) == 0; word >>= 1) ++bit;
    return bit;
#endif
}

/* Forgets what stands at or behind `cut`. */
static void trim(map_source *s, size_t cut) {
    for (uint32_t w = 0; w < TABLE_SIZE / 64; ++w)
        for (uint64_t left = s->marks[w]; left != 0; left &= left - 1) {
            uint32_t at = 64 * w + lowest_bit(left);
            if (s->table[at] >= cut) flip_mark(s, at);
        }
    s->last_idx = minus(cut, 1);
    size_t kept = 0;
    for (size_t i = 0; i < s->n_keys; ++i) {
        if (s->key_at[i] >= cut || (s->k4v && !trim_values(s, &s->keys[i], cut))) continue;
        s->keys[kept] = s->keys[i];
        s->key_at[kept++] = s->key_at[i];
    }
    s->n_keys = kept;
}

/* A new prompt of n tokens. What is kept are positions, so all that was derived from tokens is
 * derived anew from the prompt's. */
static lookup_status map_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    map_source *s = (map_source *)source;
    size_t cut = s->begin_len;
    if (cut > n) cut = minus(n, s->n + s->m);
    if (n < s->checked_len) trim(s, cut);
    s->checked_len = s->begin_len = n;
    s->drafted = false;
    s->seen = s->n_ringed = 0;
    s->pattern.set = s->entered.set = s->ringed.set = false;
    slots_reset(&s->key_index);
    slots_reset(&s->rings);
    s->n_waiting = 0;
    TRY(history_extend(&s->seen, tokens, n));
    GROW_ARRAY(s->waiting, s->waiting_room, s->n_keys);
    for (size_t i = 0; i < s->n_keys; ++i) s->waiting[i] = (uint32_t)i;
    s->n_waiting = s->n_keys;
    return index_waiting(s, tokens, minus(n, 1)); /* the last one may turn out to be the sampled one */
}

static void map_free(lookup_source *source) {
    map_source *s = (map_source *)source;
    lookup_free(s->table);
    lookup_free(s->keys);
    lookup_free(s->key_at);
    lookup_free(s->key_index.at);
    lookup_free(s->waiting);
    lookup_free(s->rings.at);
    lookup_free(s->ring);
    lookup_free(s);
}

static const source_calls CALLS = {map_free, map_begin, map_draft, map_accept, NULL};

lookup_status lookup_source_ngram_map(const lookup_ngram_map_params *p, lookup_source **source) {
    CHECK(p != NULL && source != NULL, LOOKUP_E_ARGUMENT);
    CHECK(within(p->size_n, 1, LOOKUP_MAX_GRAM) && within(p->size_m, 1, LOOKUP_MAX_GRAM), LOOKUP_E_ARGUMENT);
    CHECK(within(p->min_hits, 1, LOOKUP_MAX_HITS) && within(p->k4v, 0, 1) && within(p->compat, 0, 1), LOOKUP_E_ARGUMENT);
    map_source *s = lookup_alloc(1, sizeof *s);
    CHECK(s != NULL, LOOKUP_E_MEMORY);
    s->base.calls = &CALLS;
    s->n = (size_t)p->size_n;
    s->m = (size_t)p->size_m;
    s->min_hits = p->min_hits;
    s->k4v = p->k4v == 1;
    s->compat = p->compat == 1;
    s->gram = window_of(GRAM_FACTOR, s->n);
    s->table = lookup_alloc(TABLE_SIZE, sizeof *s->table);
    if (s->table == NULL) {
        map_free(&s->base);
        return LOOKUP_E_MEMORY;
    }
    *source = &s->base;
    return LOOKUP_OK;
}

lookup_status lookup_ngram_map_counters(const lookup_source *source, lookup_ngram_map_counts *counts) {
    CHECK(source != NULL && counts != NULL && source->calls == &CALLS, LOOKUP_E_ARGUMENT);
    const map_source *s = (const map_source *)source;
    lookup_ngram_map_counts c = {.keys = s->n_keys};
    for (size_t k = 0; k < s->n_keys; ++k)
        for (size_t i = 0; i < VALUES; ++i) c.values += s->keys[k].values[i].idx != 0;
    *counts = c;
    return LOOKUP_OK;
}
