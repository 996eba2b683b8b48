/* The `ngram-suffix` source (drafting.md, section 3): what followed the earlier text that agrees
 * with the end of the text on the most tokens.
 *
 * The index is a trie of contexts: the text behind each position, read backwards, from `min_match`
 * tokens (the trie's first edge, hashed as a whole) to `max_match`. Edges are path-compressed: a
 * branch exists where two contexts part, a leaf is a position, and edges are read from the text.
 * Each branch knows its most recent position. Entering a position walks its own context as far as
 * an earlier one agrees, which is the search for the longest match: one walk does both, with at most
 * one new branch. A step costs at most max_match, however long the text. */
#include "source_grams.h"

#define ROOT 0u
#define LEAF 0x80000000u
#define BEFORE_START UINT32_MAX /* the token before the first one; no token id */

/* A context that several positions share. */
typedef struct {
    uint32_t parent;
    uint32_t depth;  /* tokens in the context */
    uint32_t latest; /* the last position it stands behind */
} branch;

typedef struct {
    lookup_source base;
    size_t draft;
    uint32_t min_match, max_match;
    window gram;
    place entered;
    slots edges; /* item: a branch, or LEAF | position */
    branch *branches;
    size_t n_branches, branch_room;
    uint32_t *leaf_parent; /* by position */
    size_t leaf_room;
    size_t seen, next;     /* positions below `next` are in the index */
    uint32_t best_length;  /* the longest match for the position before `next`, */
    uint32_t best_end;     /* and the position it ends at */
} suffix_source;

void lookup_ngram_suffix_defaults(lookup_ngram_suffix_params *p) {
    if (p != NULL) *p = (lookup_ngram_suffix_params){.draft = 3, .min_match = 3, .max_match = 64};
}

/* The token `depth` before position `at`: what leads from a context of that depth to a longer one. */
INLINE uint32_t label(const int32_t *tokens, uint32_t at, uint32_t depth) {
    return at >= depth ? (uint32_t)tokens[at - depth] : BEFORE_START;
}

INLINE uint32_t edge_tag(uint32_t parent, uint32_t token) { return tag_of(((uint64_t)parent << 32) | token); }

/* How many tokens the contexts of positions a < b share, given that they share `known`. */
INLINE uint32_t common(const int32_t *tokens, uint32_t a, uint32_t b, uint32_t known, uint32_t limit) {
    if (limit > a + 1) limit = a + 1;
    while (known < limit && tokens[a - known] == tokens[b - known]) ++known;
    return known;
}

INLINE uint32_t position_of(const suffix_source *s, uint32_t item) {
    return item & LEAF ? item & ~LEAF : s->branches[item].latest;
}

INLINE uint32_t parent_of(const suffix_source *s, uint32_t item) {
    return item & LEAF ? s->leaf_parent[item & ~LEAF] : s->branches[item].parent;
}

/* Does `item`, whose parent is `parent`, lie on the way of position `at`? */
INLINE bool leads_on(const suffix_source *s, const int32_t *tokens, uint32_t item, uint32_t parent, uint32_t at) {
    uint32_t other = position_of(s, item);
    if (parent == ROOT) return common(tokens, other, at, 0, s->min_match) == s->min_match;
    uint32_t depth = s->branches[parent].depth;
    return label(tokens, other, depth) == label(tokens, at, depth);
}

/* The edge from `parent` on the way of position `at`, or the free place for it. */
INLINE uint64_t *find(const suffix_source *s, const int32_t *tokens, uint32_t parent, uint32_t tag, uint32_t at) {
    uint32_t i = slots_home(&s->edges, tag);
    for (; s->edges.at[i] != 0; i = slots_after(&s->edges, i)) {
        uint32_t item = (uint32_t)s->edges.at[i];
        if ((uint32_t)(s->edges.at[i] >> 32) != tag || parent_of(s, item) != parent) continue;
        if (LIKELY(leads_on(s, tokens, item, parent, at))) break;
    }
    return &s->edges.at[i];
}

INLINE void set_parent(suffix_source *s, uint32_t item, uint32_t parent) {
    if (item & LEAF) s->leaf_parent[item & ~LEAF] = parent;
    else s->branches[item].parent = parent;
}

static void hang(suffix_source *s, const int32_t *tokens, uint32_t parent, uint32_t item) {
    uint32_t tag = edge_tag(parent, label(tokens, position_of(s, item), s->branches[parent].depth));
    set_parent(s, item, parent);
    *slots_free_place(&s->edges, tag) = slot_of(tag, item);
    s->edges.used++;
}

/* Puts a branch into the edge at `slot`, where position `at` parts from it after `depth` tokens. */
static void split(suffix_source *s, const int32_t *tokens, uint64_t *slot, uint32_t depth, uint32_t at) {
    uint32_t item = (uint32_t)*slot, id = (uint32_t)s->n_branches++;
    s->branches[id] = (branch){.parent = parent_of(s, item), .depth = depth, .latest = at};
    *slot = slot_of((uint32_t)(*slot >> 32), id);
    hang(s, tokens, id, item);
    hang(s, tokens, id, at | LEAF);
}

/* Walks position `at` down the trie, enters it, and leaves its longest match in best_*. */
static void walk(suffix_source *s, const int32_t *tokens, uint32_t at) {
    uint32_t parent = ROOT, known = s->min_match;
    uint32_t tag = tag_of(place_move(&s->gram, &s->entered, tokens, at + 1 - s->min_match));
    for (;;) {
        uint64_t *slot = find(s, tokens, parent, tag, at);
        uint32_t item = (uint32_t)*slot;
        bool leaf = item == 0 || (item & LEAF) != 0;
        uint32_t limit = leaf ? s->max_match : s->branches[item].depth;
        if (item != 0) {
            s->best_end = position_of(s, item);
            s->best_length = common(tokens, s->best_end, at, known, limit);
            if (s->best_length < limit) {
                split(s, tokens, slot, s->best_length, at);
                return;
            }
        }
        if (leaf) { /* the first context of its kind, or the same again */
            s->edges.used += item == 0;
            *slot = slot_of(tag, at | LEAF);
            s->leaf_parent[at] = parent;
            return;
        }
        s->branches[item].latest = at;
        parent = item;
        known = limit + 1; /* the edge found next agrees in its first token */
        tag = edge_tag(parent, label(tokens, at, limit));
    }
}

static lookup_status enter(suffix_source *s, const int32_t *tokens, size_t n) {
    GROW_ARRAY(s->leaf_parent, s->leaf_room, n);
    for (; s->next < n; ++s->next) {
        GROW_ARRAY(s->branches, s->branch_room, s->n_branches + 1);
        TRY(slots_reserve(&s->edges, 2));
        s->best_length = 0;
        if (s->next + 1 >= s->min_match) walk(s, tokens, (uint32_t)s->next);
    }
    return LOOKUP_OK;
}

static lookup_status suffix_begin(lookup_source *source, const int32_t *tokens, size_t n) {
    suffix_source *s = (suffix_source *)source;
    slots_reset(&s->edges);
    s->entered.set = false;
    s->n_branches = 1;
    s->seen = s->next = 0;
    s->best_length = 0;
    TRY(history_extend(&s->seen, tokens, n));
    return enter(s, tokens, n);
}

static lookup_status suffix_draft(lookup_source *source, const int32_t *tokens, size_t n, int32_t *draft,
                                  uint8_t *tiers, size_t capacity, size_t *n_draft) {
    suffix_source *s = (suffix_source *)source;
    TRY(history_extend(&s->seen, tokens, n));
    TRY(enter(s, tokens, n));
    if (s->best_length < s->min_match) return LOOKUP_OK;
    size_t from = (size_t)s->best_end + 1, left = n - from;
    give_draft(tokens + from, left < s->draft ? left : s->draft, draft, tiers, capacity, n_draft);
    return LOOKUP_OK;
}

static lookup_status suffix_accept(lookup_source *source, size_t n_accepted) {
    (void)source;
    (void)n_accepted; /* what was really said arrives with the next call's tokens */
    return LOOKUP_OK;
}

static void suffix_free(lookup_source *source) {
    suffix_source *s = (suffix_source *)source;
    lookup_free(s->edges.at);
    lookup_free(s->branches);
    lookup_free(s->leaf_parent);
    lookup_free(s);
}

static const source_calls CALLS = {suffix_free, suffix_begin, suffix_draft, suffix_accept, NULL};

lookup_status lookup_source_ngram_suffix(const lookup_ngram_suffix_params *params, lookup_source **source) {
    CHECK(params != NULL && source != NULL && within(params->draft, 1, LOOKUP_MAX_DRAFT), LOOKUP_E_ARGUMENT);
    CHECK(within(params->max_match, 1, LOOKUP_MAX_GRAM), LOOKUP_E_ARGUMENT);
    CHECK(within(params->min_match, 1, params->max_match), LOOKUP_E_ARGUMENT);
    suffix_source *s = lookup_alloc(1, sizeof *s);
    CHECK(s != NULL, LOOKUP_E_MEMORY);
    s->base.calls = &CALLS;
    s->draft = (size_t)params->draft;
    s->min_match = (uint32_t)params->min_match;
    s->max_match = (uint32_t)params->max_match;
    s->gram = window_of(GRAM_FACTOR, s->min_match);
    s->n_branches = 1; /* ROOT */
    *source = &s->base;
    return LOOKUP_OK;
}
