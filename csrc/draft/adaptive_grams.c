/* N-grams of orders 1 to 32 and what followed them: the context and the dynamic tier.
 *
 * Deep n-grams are entered only where they say something new. While an n-gram was seen once, all
 * that can be known of the longer ones that end in it is where it stood: whoever looks one up
 * compares the texts there. Seen a second time, both places get their n-gram of the next order. So
 * new text costs two or three n-grams a token instead of eight, and a look-up ends at the first
 * n-gram that was seen once, with the same answers.
 *
 * The dynamic tier is bounded: a clock's hand goes round and gives up the first n-gram that was not
 * counted again since it last passed. */
#include "adaptive_grams.h"

#define FIRST_GRAMS 512u
#define FIRST_BITS 10u
#define MOST_GRAMS (LOOKUP_ADAPTIVE_MOST_GRAMS - 1)

#define POWER_2 (HASH_BASE * HASH_BASE)
#define POWER_4 (POWER_2 * POWER_2)
#define POWER_8 (POWER_4 * POWER_4)
#define POWER_16 (POWER_8 * POWER_8)
/* HASH_BASE to the power of each order, mod 2^64. */
static const uint64_t POWER[N_ORDERS] = {HASH_BASE, POWER_2, POWER_2 * HASH_BASE, POWER_4, POWER_4 * POWER_2,
                                         POWER_8, POWER_16, POWER_16 * POWER_16};

static uint32_t spread(uint64_t h, int o) {
    h = (h + (uint64_t)o + 1) * 0xff51afd7ed558ccdull;
    return (uint32_t)(((h ^ (h >> 32)) * 0x9E3779B97F4A7C15ull) >> 32);
}

uint32_t lookup_adaptive_hash(const history *h, size_t n, int o) {
    return spread(h->prefix[n] - h->prefix[n - ORDER[o]] * POWER[o], o);
}

/* The hash of the n-gram that ends before `at` in the text; false if it is not all there. */
static bool hash_in_text(const tier_text *text, uint32_t at, int o, uint32_t *hash) {
    uint64_t h = 0;
    for (uint32_t k = ORDER[o]; k >= 1; --k) {
        int32_t token = text_at(text, at - k);
        if (token < 0) return false;
        h = prefix_after(h, token);
    }
    *hash = spread(h, o);
    return true;
}

uint32_t lookup_adaptive_common(const tier_text *text, uint32_t at, const int32_t *tokens, size_t n, uint32_t most) {
    uint32_t same = 0;
    if (most > n) most = (uint32_t)n;
    while (same < most && text_at(text, at - 1 - same) == tokens[n - 1 - same]) ++same;
    return same;
}

void lookup_adaptive_text_push(tier_text *t, int32_t token) {
    t->tokens[t->end++ & t->mask] = token;
    t->held += t->held <= t->mask;
}

lookup_status lookup_adaptive_tier_new(gram_tier *t, uint32_t limit, uint32_t ring) {
    memset(t, 0, sizeof *t);
    t->limit = limit;
    t->bits = FIRST_BITS;
    t->n = 1;
    t->capacity = FIRST_GRAMS;
    t->hand = 1;
    t->text.mask = limit ? ring - 1 : UINT32_MAX;
    t->grams = lookup_alloc(t->capacity, sizeof *t->grams);
    t->places = lookup_alloc((size_t)1 << t->bits, sizeof *t->places);
    if (limit) t->text.tokens = lookup_alloc(ring, sizeof *t->text.tokens);
    if (t->grams && t->places && (!limit || t->text.tokens)) return LOOKUP_OK;
    lookup_adaptive_tier_free(t);
    return LOOKUP_E_MEMORY;
}

void lookup_adaptive_tier_free(gram_tier *t) {
    lookup_free(t->grams);
    lookup_free(t->places);
    if (t->limit) lookup_free(t->text.tokens);
    memset(t, 0, sizeof *t);
}

static uint32_t place_of_id(const gram_tier *t, uint32_t id) {
    uint32_t mask = (1u << t->bits) - 1, i = place_of(t, t->grams[id].hash);
    while (t->places[i] >> 7 != id) i = (i + 1) & mask;
    return i;
}

void lookup_adaptive_tier_clear(gram_tier *t) {
    size_t n_places = (size_t)1 << t->bits;
    if (t->n > n_places / 16 || t->limit) memset(t->places, 0, n_places * sizeof *t->places);
    else /* backwards: later ones stand behind earlier ones, never in front */
        for (uint32_t id = t->n - 1; id >= 1; --id) t->places[place_of_id(t, id)] = 0;
    t->n = 1;
    t->hand = 1;
    t->text.end = t->text.held = 0;
}

static void enter(uint32_t *places, uint32_t bits, uint32_t hash, uint32_t id) {
    uint32_t mask = (1u << bits) - 1, i = hash >> (32 - bits);
    while (places[i] != 0) i = (i + 1) & mask;
    places[i] = id << 7 | (hash & 127u);
}

static lookup_status grow_places(gram_tier *t) {
    CHECK(t->bits < 27, LOOKUP_E_LIMIT);
    uint32_t *places = lookup_alloc((size_t)1 << (t->bits + 1), sizeof *places);
    CHECK(places != NULL, LOOKUP_E_MEMORY);
    for (uint32_t id = 1; id < t->n; ++id) enter(places, t->bits + 1, t->grams[id].hash, id);
    lookup_free(t->places);
    t->places = places;
    ++t->bits;
    return LOOKUP_OK;
}

/* Space for `more` further n-grams, so that counting a token cannot fail half way. */
static lookup_status reserve(gram_tier *t, uint32_t more) {
    uint32_t most = t->limit ? t->limit : MOST_GRAMS, want = t->n + more < most ? t->n + more : most;
    if (want > t->capacity) {
        uint32_t capacity = t->capacity + t->capacity / 2;
        if (capacity > most) capacity = most;
        gram *grams = lookup_realloc(t->grams, capacity, sizeof *grams);
        CHECK(grams != NULL, LOOKUP_E_MEMORY);
        t->grams = grams;
        t->capacity = capacity;
    }
    if ((uint64_t)want * 3 > (2ull << t->bits)) TRY(grow_places(t));
    return LOOKUP_OK;
}

/* Takes an n-gram out of the places, closing the gap. */
static void take_out(gram_tier *t, uint32_t id) {
    uint32_t mask = (1u << t->bits) - 1, gap = place_of_id(t, id);
    for (uint32_t i = (gap + 1) & mask; t->places[i] != 0; i = (i + 1) & mask) {
        uint32_t home = place_of(t, t->grams[t->places[i] >> 7].hash);
        if (((i - home) & mask) < ((i - gap) & mask)) continue;
        t->places[gap] = t->places[i];
        gap = i;
    }
    t->places[gap] = 0;
}

/* The id of an n-gram that may be overwritten. */
static uint32_t give_up_one(gram_tier *t) {
    for (;; ++t->hand) {
        if (t->hand >= t->n) t->hand = 1;
        if (!t->grams[t->hand].seen) break;
        t->grams[t->hand].seen = 0;
    }
    take_out(t, t->hand);
    return t->hand++;
}

static gram *make(gram_tier *t, uint32_t hash, int o) {
    uint32_t most = t->limit ? t->limit : MOST_GRAMS;
    uint32_t id = t->n < most ? t->n++ : give_up_one(t);
    enter(t->places, t->bits, hash, id);
    t->grams[id] = (gram){.hash = hash, .at = NOWHERE, .token = {NO_TOKEN, NO_TOKEN}, .order = (uint8_t)o};
    return &t->grams[id];
}

static void halve(gram *g) {
    g->total = (uint16_t)(g->total / 2);
    for (int i = 0; i < 2; ++i) g->count[i] = (uint16_t)((g->count[i] + 1) / 2);
}

static void add(gram *g, int32_t token, uint32_t at) {
    if (g->total == UINT16_MAX) halve(g);
    bool again = g->total > 0 && g->token[g->latest] == token;
    int i = g->total == 0 || g->token[0] == token ? 0 : 1;
    if (g->token[i] != token) g->count[i] = 0;
    g->token[i] = token;
    g->count[i]++;
    g->total++;
    uint32_t run = again ? g->run + 1u : 1u;
    g->run = (run < RUN_CAP ? run : RUN_CAP) & RUN_CAP;
    if (i == 1 && g->count[1] >= g->count[0]) { /* the newer one leads among equals */
        int32_t first = g->token[0];
        uint16_t count = g->count[0];
        g->token[0] = token;
        g->count[0] = g->count[1];
        g->token[1] = first;
        g->count[1] = count;
        i = 0;
    }
    g->latest = (uint32_t)i & 1u;
    g->seen = g->total > 1;
    g->at = at;
}

/* An n-gram that was seen once is seen again: its first place gets an n-gram of the next order. */
static void deepen(gram_tier *t, const gram *g, int o) {
    uint32_t hash, at = g->at;
    int32_t token = g->token[0];
    if (o + 1 == N_ORDERS || !hash_in_text(&t->text, at, o + 1, &hash)) return;
    if (gram_find(t, hash, o + 1) == NULL) add(make(t, hash, o + 1), token, at);
}

lookup_status lookup_adaptive_count(gram_tier *t, const history *h, size_t n, int32_t token, uint32_t at) {
    TRY(reserve(t, 2 * N_ORDERS));
    for (int o = 0; o < N_ORDERS && ORDER[o] <= n; ++o) {
        uint32_t hash = lookup_adaptive_hash(h, n, o);
        const gram *found = gram_find(t, hash, o);
        if (found == NULL) {
            add(make(t, hash, o), token, at);
            break;
        }
        uint32_t id = (uint32_t)(found - t->grams);
        bool once = found->total == 1 && text_has(&t->text, found->at);
        if (once) deepen(t, found, o);
        if (t->grams[id].hash == hash) add(&t->grams[id], token, at);
    }
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_import(gram_tier *t, const int32_t *tokens, int o, uint32_t total,
                                     const int32_t followers[2], const uint32_t counts[2]) {
    TRY(reserve(t, 1));
    uint64_t h = 0;
    for (uint32_t k = 0; k < ORDER[o]; ++k) h = prefix_after(h, tokens[k]);
    gram *g = make(t, spread(h, o), o);
    uint32_t scale = 1 + total / UINT16_MAX;
    g->total = (uint16_t)(total / scale);
    for (int i = 0; i < 2; ++i) {
        g->token[i] = followers[i];
        g->count[i] = (uint16_t)(counts[i] / scale);
    }
    g->seen = total > 1;
    return LOOKUP_OK;
}

uint64_t lookup_adaptive_tier_bytes(const gram_tier *t) {
    uint64_t ring = t->limit ? 4ull * ((uint64_t)t->text.mask + 1) : 0;
    return (uint64_t)t->capacity * sizeof *t->grams + (4ull << t->bits) + ring;
}
