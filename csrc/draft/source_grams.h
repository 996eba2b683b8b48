/* What the position-based draft sources share: a hash of a window of tokens that moves along the
 * text in O(1), a hash table of 32-bit items that never reads what it stores, and the checks on a
 * growing history. */
#ifndef LOOKUP_SOURCE_GRAMS_H
#define LOOKUP_SOURCE_GRAMS_H

#include "source.h"

/* ngram-map's own hash in its low 32 bits; wider, it serves our tables too. */
#define GRAM_FACTOR 2654435761u

/* Hash of `size` tokens: h = h*factor + token over them, mod 2^64; `factor` is odd. */
typedef struct {
    uint64_t factor, inverse; /* factor*inverse == 1 */
    uint64_t lead;            /* factor^(size-1): the weight of the oldest token */
    size_t size;
} window;

/* A window somewhere in the text, and its hash. */
typedef struct {
    size_t at;
    uint64_t hash;
    bool set;
} place;

INLINE uint64_t id_of(int32_t token) { return (uint32_t)token; }

static inline window window_of(uint64_t factor, size_t size) {
    window w = {.factor = factor, .inverse = factor, .lead = 1, .size = size};
    for (int i = 0; i < 5; ++i) w.inverse *= 2 - factor * w.inverse; /* 3 right bits, doubled 5 times */
    for (size_t i = 1; i < size; ++i) w.lead *= factor;
    return w;
}

static inline uint64_t window_hash(const window *w, const int32_t *tokens) {
    uint64_t h = 0;
    for (size_t i = 0; i < w->size; ++i) h = h * w->factor + id_of(tokens[i]);
    return h;
}

/* One token on: `oldest` leaves, `newest` enters. */
INLINE uint64_t window_next(const window *w, uint64_t h, int32_t oldest, int32_t newest) {
    return (h - id_of(oldest) * w->lead) * w->factor + id_of(newest);
}

/* One token back: `newest` leaves, `oldest` enters. */
INLINE uint64_t window_back(const window *w, uint64_t h, int32_t oldest, int32_t newest) {
    return (h - id_of(newest)) * w->inverse + id_of(oldest) * w->lead;
}

INLINE uint64_t place_move(const window *w, place *p, const int32_t *tokens, size_t to) {
    if (!p->set || to < p->at || to - p->at > w->size) {
        *p = (place){.at = to, .hash = window_hash(w, tokens + to), .set = true};
        return p->hash;
    }
    for (; p->at < to; ++p->at) p->hash = window_next(w, p->hash, tokens[p->at], tokens[p->at + w->size]);
    return p->hash;
}

INLINE bool same_tokens(const int32_t *a, const int32_t *b, size_t n) {
    return a[0] == b[0] && memcmp(a, b, n * sizeof *a) == 0;
}

/* Open addressing: tag << 32 | item, 0 where free. The place follows from the tag alone, so growing
 * needs nothing else; items are not 0, and their owner tells equal tags apart. */
typedef struct {
    uint64_t *at;
    uint32_t bits; /* log2 of the number of places, 0 before the first item */
    uint32_t used;
} slots;

#define TAG_BITS 31
#define UNPLACED 0x8000000000000000u /* marks a slot while its table is rebuilt */
#define SLOTS_FIRST_BITS 12
#define SLOTS_MAX_BITS 30

INLINE uint32_t tag_of(uint64_t hash) { return (uint32_t)(fmix64(hash) >> (64 - TAG_BITS)); }
INLINE uint32_t slots_home(const slots *s, uint32_t tag) { return tag >> (TAG_BITS - s->bits); }
INLINE uint32_t slots_after(const slots *s, uint32_t at) { return (at + 1) & ((1u << s->bits) - 1); }
INLINE uint64_t slot_of(uint32_t tag, uint32_t item) { return ((uint64_t)tag << 32) | item; }

/* The free place where an item with this tag goes. */
INLINE uint64_t *slots_free_place(const slots *s, uint32_t tag) {
    uint32_t at = slots_home(s, tag);
    while (s->at[at] != 0) at = slots_after(s, at);
    return &s->at[at];
}

/* Gives a slot its place in the grown table, and whatever it drives out, until one finds a free
 * place. Slots already placed are passed over and stay, so every probe sequence remains whole. */
static inline void slots_place(slots *s, uint64_t slot) {
    while (slot != 0) {
        slot &= ~UNPLACED;
        uint32_t at = slots_home(s, (uint32_t)(slot >> 32));
        while (s->at[at] != 0 && !(s->at[at] & UNPLACED)) at = slots_after(s, at);
        uint64_t driven_out = s->at[at];
        s->at[at] = slot;
        slot = driven_out;
    }
}

/* Doubles the table where it is: touching fresh memory costs more than moving slots. */
static inline lookup_status slots_grow(slots *s) {
    CHECK(s->bits < SLOTS_MAX_BITS, LOOKUP_E_LIMIT);
    size_t old = s->at ? (size_t)1 << s->bits : 0, size = old ? 2 * old : (size_t)1 << SLOTS_FIRST_BITS;
    uint64_t *grown = lookup_realloc(s->at, size, sizeof *grown);
    CHECK(grown != NULL, LOOKUP_E_MEMORY);
    memset(grown + old, 0, (size - old) * sizeof *grown);
    s->at = grown;
    s->bits = old ? s->bits + 1 : SLOTS_FIRST_BITS;
    for (size_t i = 0; i < old; ++i)
        if (grown[i] != 0) grown[i] |= UNPLACED;
    for (size_t i = 0; i < old; ++i) {
        uint64_t slot = grown[i];
        if (!(slot & UNPLACED)) continue;
        grown[i] = 0;
        slots_place(s, slot);
    }
    return LOOKUP_OK;
}

/* Room for `n` more items; places stay where they are until the next call. */
INLINE lookup_status slots_reserve(slots *s, uint32_t n) {
    while (UNLIKELY(s->at == NULL || s->used + n > (1u << s->bits) / 2)) TRY(slots_grow(s));
    return LOOKUP_OK;
}

/* Empties the table in O(used): one much larger than its use shrinks first. */
static inline void slots_reset(slots *s) {
    uint32_t bits = s->bits;
    while (bits > SLOTS_FIRST_BITS && s->used < (1u << bits) / 16) --bits;
    if (bits < s->bits) {
        uint64_t *smaller = lookup_realloc(s->at, (size_t)1 << bits, sizeof *smaller);
        if (smaller != NULL) {
            s->at = smaller;
            s->bits = bits;
        }
    }
    if (s->at != NULL) memset(s->at, 0, ((size_t)1 << s->bits) * sizeof *s->at);
    s->used = 0;
}

/* Grows an array to hold `need` elements, amortised. */
static inline lookup_status grow_array(void **array, size_t *capacity, size_t need, size_t size) {
    if (LIKELY(need <= *capacity)) return LOOKUP_OK;
    size_t more = *capacity < 64 ? 64 : *capacity;
    while (more < need) more *= 2; /* need stays below 2^32 */
    void *grown = lookup_realloc(*array, more, size);
    CHECK(grown != NULL, LOOKUP_E_MEMORY);
    *array = grown;
    *capacity = more;
    return LOOKUP_OK;
}

#define GROW_ARRAY(array, capacity, need)                                                              \
    do {                                                                                           \
        void *grow_array_ = (array);                                                               \
        lookup_status grow_status_ = grow_array(&grow_array_, &(capacity), (need), sizeof *(array));   \
        (array) = grow_array_;                                                                     \
        if (UNLIKELY(grow_status_ != LOOKUP_OK)) return grow_status_;                              \
    } while (0)

/* A history only grows between two begins, up to 2^31-1 tokens, none of them negative. */
static inline lookup_status history_extend(size_t *seen, const int32_t *tokens, size_t n) {
    CHECK(n >= *seen, LOOKUP_E_ARGUMENT);
    CHECK(n <= INT32_MAX, LOOKUP_E_LIMIT);
    for (size_t i = *seen; i < n; ++i) CHECK(tokens[i] >= 0, LOOKUP_E_TOKEN);
    *seen = n;
    return LOOKUP_OK;
}

/* Hands out up to `capacity` of `n` tokens. These sources have no tiers. */
INLINE void give_draft(const int32_t *from, size_t n, int32_t *draft, uint8_t *tiers, size_t capacity, size_t *n_draft) {
    size_t given = n < capacity ? n : capacity;
    if (given > 0) {
        memcpy(draft, from, given * sizeof *draft);
        memset(tiers, 0, given);
    }
    *n_draft = given;
}

INLINE bool within(int32_t value, int32_t low, int32_t high) { return value >= low && value <= high; }

#endif
