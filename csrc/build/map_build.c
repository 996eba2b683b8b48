/* Building a verified constmap: a three-wise binary fuse construction over (hash, value) pairs.
 *
 * The output's own two arrays serve as the peeling accumulators (xor of the values and of the mixed
 * hashes at each slot), so the build needs beside them one byte a slot and one 16-byte pair a key.
 * Keys are first partitioned by their first slot, so that all later work slides through memory.
 *
 * A fuse graph peels as two waves, from either end of the array to the middle. The middle is
 * fixed by the geometry: keys left of it (half 0), right of it (half 1), and the few that reach
 * across (the bridge). The halves never touch the same slot, so they may run at the same time, and
 * the result does not depend on whether they did.
 *
 * Source: Graf and Lemire, "Binary Fuse Filters" (2022); geometry constants as in fastconstmap. */
#include <math.h>

#include "../core/map.h"

#define MAX_SEGMENT 262144u /* keeps three segments of both arrays inside a second-level cache */
#define BUCKET_BITS 10
#define BUCKETS (1u << BUCKET_BITS)
#define MAX_TODO 64  /* slots waiting in one depth-first walk */
#define MIN_HALVES 16u /* segments below which the bridge would be most of the map */

typedef struct {
    uint64_t m, value;
} pair;

/* The scratch block, carved: pairs, then counts, then a small fixed head. */
typedef struct {
    uint64_t first[BUCKETS + 1]; /* where each bucket's pairs start */
    uint64_t peeled[2];          /* pairs on the stack of each half */
    uint64_t middle;             /* pairs on the stack of the meeting phase */
} head;

typedef struct {
    const lookup_map_plan *plan;
    uint64_t span, segment, n;
    uint64_t mid_segment; /* halves meet here; 0: half 1 does all the work */
    unsigned char *values, *checks; /* inside `out`, little-endian words */
    head *head;
    pair *pairs;     /* partitioned keys; once entered, the peeling stacks */
    uint8_t *counts; /* keys at each slot */
    uint8_t *found;  /* which of its three slots each stacked key was alone in */
} build;

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static lookup_status set_sizes(lookup_map_plan *plan) {
    uint64_t slots = plan->segment_count == 0
                         ? 0
                         : ((uint64_t)plan->segment_count + 2) * plan->segment_length;
    CHECK(slots <= UINT32_MAX, LOOKUP_E_LIMIT);
    plan->slots = slots;
    plan->map_bytes = LOOKUP_MAP_HEADER + 16 * slots + 8;
    plan->scratch_bytes = sizeof(head) + plan->n_keys * (sizeof(pair) + 1) + slots + 8;
    return LOOKUP_OK;
}

lookup_status lookup_map_plan_first(lookup_map_plan *plan, uint64_t n_keys, int32_t hash) {
    CHECK(plan != NULL && (hash == LOOKUP_HASH_XXH64 || hash == LOOKUP_HASH_XXH3), LOOKUP_E_ARGUMENT);
    CHECK(n_keys < UINT32_MAX, LOOKUP_E_LIMIT);
    lookup_map_plan p = {.n_keys = n_keys, .seed_state = 1, .hash = hash, .tries = 1};
    p.seed = splitmix64(&p.seed_state);
    if (n_keys > 0) {
        double n = (double)n_keys;
        /* 3.33 and 2.25: the paper's fit for the segment length that peels best at arity 3. */
        double bits = n_keys > 1 ? floor(log(n) / log(3.33) + 2.25) : 2;
        uint32_t length = bits > 30 ? MAX_SEGMENT : 1u << (int)bits;
        p.segment_length = length > MAX_SEGMENT ? MAX_SEGMENT : length;
        /* 1.125 slots a key suffice for large maps; small ones need a growing reserve. */
        double factor = n_keys > 1 ? fmax(1.125, 0.875 + 0.25 * log(1e6) / log(n)) : 0;
        uint64_t capacity = (uint64_t)round(n * factor);
        uint64_t total = (capacity + p.segment_length - 1) / p.segment_length;
        p.segment_count = (uint32_t)(total > 3 ? total : 3) - 2;
    }
    TRY(set_sizes(&p));
    *plan = p;
    return LOOKUP_OK;
}

lookup_status lookup_map_plan_next(lookup_map_plan *plan) {
    CHECK(plan != NULL && plan->tries >= 1, LOOKUP_E_ARGUMENT);
    CHECK(plan->tries < LOOKUP_MAP_MAX_TRIES, LOOKUP_E_CONSTRUCTION);
    lookup_map_plan p = *plan;
    p.seed = splitmix64(&p.seed_state);
    /* Some sizes below a million fail their first geometry almost always: alternate with one of
     * half the segment length, as fastconstmap does (third try of four; the fourth goes back). */
    if (p.n_keys > 4 && p.n_keys < 1000000) {
        if (p.tries % 4 == 2) {
            p.segment_length /= 2;
            p.segment_count = 2 * p.segment_count + 2;
        } else if (p.tries % 4 == 3) {
            p.segment_length *= 2;
            p.segment_count = (p.segment_count - 2) / 2;
        }
    }
    p.tries += 1;
    TRY(set_sizes(&p));
    *plan = p;
    return LOOKUP_OK;
}

static build carve(const lookup_map_plan *plan, void *out, void *scratch) {
    unsigned char *s = scratch, *o = out;
    build b = {.plan = plan, .segment = plan->segment_length, .n = plan->n_keys,
               .span = (uint64_t)plan->segment_count * plan->segment_length,
               .mid_segment = plan->segment_count < MIN_HALVES ? 0 : plan->segment_count / 2,
               .values = o + LOOKUP_MAP_HEADER, .checks = o + LOOKUP_MAP_HEADER + 8 * plan->slots,
               .head = (head *)scratch, .pairs = (pair *)(void *)(s + sizeof(head))};
    b.counts = s + sizeof(head) + plan->n_keys * sizeof(pair);
    b.found = b.counts + plan->slots;
    return b;
}

INLINE void xor_word(unsigned char *base, uint64_t i, uint64_t word) {
    store64(base + 8 * i, load64(base + 8 * i) ^ word);
}
INLINE triple slots_in(const build *b, uint64_t m) { return slots_of(m, b->span, b->segment); }
/* The half a key belongs to: 0, 1, or 2 for the bridge. */
INLINE int half_of(const build *b, uint64_t p0) {
    uint64_t segment = p0 / b->segment;
    return segment >= b->mid_segment ? 1 : segment + 2 < b->mid_segment ? 0 : 2;
}
INLINE uint64_t bucket_of(uint64_t m) { return m >> (64 - BUCKET_BITS); }

/* Phase 0, both halves: clear this half of the arrays. */
static void clear_half(const build *b, int half) {
    uint64_t slots = b->plan->slots, cut = slots / 2;
    uint64_t from = half == 0 ? 0 : cut, to = half == 0 ? cut : slots;
    memset(b->values + 8 * from, 0, 8 * (to - from));
    memset(b->checks + 8 * from, 0, 8 * (to - from));
    memset(b->counts + from, 0, to - from);
}

/* Phase 1: hash every key and partition the pairs by the top bits of the mixed hash, which order
 * the first slots. */
static lookup_status partition(const build *b, const uint64_t *records) {
    uint64_t *first = b->head->first, at[BUCKETS];
    uint64_t seed = b->plan->seed;
    int32_t hash = b->plan->hash;
    memset(b->head, 0, sizeof *b->head);
    for (uint64_t i = 0; i < b->n; ++i) {
        CHECK(i == 0 || records[2 * i] != records[2 * i - 2], LOOKUP_E_DUPLICATE);
        first[bucket_of(mixed(records[2 * i], seed, hash)) + 1]++;
    }
    for (uint64_t k = 0; k < BUCKETS; ++k) first[k + 1] += first[k];
    memcpy(at, first, sizeof at);
    for (uint64_t i = 0; i < b->n; ++i) {
        uint64_t m = mixed(records[2 * i], seed, hash);
        pair *to = &b->pairs[at[bucket_of(m)]++];
        to->m = m;
        to->value = records[2 * i + 1];
    }
    return LOOKUP_OK;
}

INLINE void add_key(const build *b, const pair *key) {
    triple t = slots_in(b, key->m);
    uint64_t p[3] = {t.p0, t.p1, t.p2};
    for (int k = 0; k < 3; ++k) {
        xor_word(b->checks, p[k], key->m);
        xor_word(b->values, p[k], key->value);
        uint8_t count = b->counts[p[k]]; /* a full count stays: it never peels, so the next seed */
        b->counts[p[k]] = count == UINT8_MAX ? count : (uint8_t)(count + 1);
    }
}

/* Phase 2 (halves) and the start of phase 3 (bridge): enter this part's keys. */
static void populate(const build *b, int part) {
    /* p0 grows with m, so a part's keys stand in a run of buckets; its edge buckets are shared. */
    double share = b->plan->segment_count ? (double)BUCKETS / b->plan->segment_count : 0;
    uint64_t left = b->mid_segment < 2 ? 0 : (uint64_t)((double)(b->mid_segment - 2) * share);
    uint64_t right = (uint64_t)((double)b->mid_segment * share);
    uint64_t from = part == 0 ? 0 : part == 2 ? (left > 0 ? left - 1 : 0) : (right > 0 ? right - 1 : 0);
    uint64_t to = part == 0 ? left + 2 : part == 2 ? right + 2 : BUCKETS;
    if (to > BUCKETS) to = BUCKETS;
    for (uint64_t i = b->head->first[from]; i < b->head->first[to]; ++i)
        if (half_of(b, slots_in(b, b->pairs[i].m).p0) == part) add_key(b, &b->pairs[i]);
}


/* A peeling stack inside the pairs array: half 0's grows up from the start, half 1's down from the
 * end, and the meeting phase's fills the gap that is left, which is exactly as long as needed. */
typedef struct {
    uint64_t at, step, n;
} stack;

/* Takes lone keys out of their slots, depth first from `slot`, as long as one of their other slots
 * becomes lone. `part` is the only part that may be peeled now, or -1 for any. */
static void peel_from(const build *b, uint64_t slot, int part, stack *s) {
    uint64_t todo[MAX_TODO];
    int n_todo = 0;
    todo[n_todo++] = slot;
    while (n_todo > 0) {
        slot = todo[--n_todo];
        if (b->counts[slot] != 1) continue;
        pair key = {load64(b->checks + 8 * slot), load64(b->values + 8 * slot)};
        triple t = slots_in(b, key.m);
        if (part >= 0 && half_of(b, t.p0) != part) continue;
        b->found[s->at] = (uint8_t)((t.p1 == slot) + 2 * (t.p2 == slot));
        b->pairs[s->at] = key;
        s->at += s->step;
        s->n += 1;
        uint64_t p[3] = {t.p0, t.p1, t.p2};
        for (int k = 0; k < 3; ++k) {
            xor_word(b->checks, p[k], key.m);
            xor_word(b->values, p[k], key.value);
            if (b->counts[p[k]] == UINT8_MAX) continue; /* more keys than it counts: never lone */
            /* A full todo list loses nothing: the sweep comes back for what is left lone. */
            if (--b->counts[p[k]] == 1 && n_todo < MAX_TODO) todo[n_todo++] = p[k];
        }
    }
}

static void sweep(const build *b, uint64_t from, uint64_t to, int part, bool down, stack *s) {
    for (uint64_t i = 0; i < to - from; ++i) {
        uint64_t slot = down ? to - 1 - i : from + i;
        if (b->counts[slot] == 1) peel_from(b, slot, part, s);
    }
}

/* Phase 4: each half's wave runs from its end of the array towards the middle. */
static void peel_half(const build *b, int half) {
    uint64_t mid = b->mid_segment * b->segment;
    stack s = {half == 0 ? 0 : b->n - 1, half == 0 ? 1 : (uint64_t)-1, 0};
    if (half == 0) sweep(b, 0, mid, 0, false, &s);
    else sweep(b, mid, b->plan->slots, 1, true, &s);
    b->head->peeled[half] = s.n;
}

/* The start of phase 5: what the waves left, bridge included; repeated while it makes progress. */
static lookup_status peel_middle(const build *b) {
    uint64_t left = b->head->peeled[0], rest = b->n - left - b->head->peeled[1], before;
    stack s = {left, 1, 0};
    do {
        before = s.n;
        if (s.n < rest) sweep(b, 0, b->plan->slots, -1, false, &s);
    } while (s.n > before && s.n < rest);
    b->head->middle = s.n;
    return s.n == rest ? LOOKUP_OK : LOOKUP_E_CONSTRUCTION;
}

/* Gives one stacked key the word at the slot it was alone in, so that its three words xor to it. */
INLINE void assign(const build *b, uint64_t i) {
    const pair *key = &b->pairs[i];
    triple t = slots_in(b, key->m);
    uint64_t p[3] = {t.p0, t.p1, t.p2}, own = p[b->found[i]];
    uint64_t check = check_of(key->m), value = key->value;
    for (int k = 0; k < 3; ++k) { /* the own slot still holds 0 */
        check ^= load64(b->checks + 8 * p[k]);
        value ^= load64(b->values + 8 * p[k]);
    }
    store64(b->checks + 8 * own, check);
    store64(b->values + 8 * own, value);
}

/* Phase 6: the halves' stacks, last in first out; the meeting phase's went before. */
static void assign_half(const build *b, int half) {
    uint64_t n = b->head->peeled[half];
    for (uint64_t i = 0; i < n; ++i) assign(b, half == 0 ? n - 1 - i : b->n - n + i);
}

static void write_header(const build *b, unsigned char *out) {
    const lookup_map_plan *p = b->plan;
    store64(out, p->hash == LOOKUP_HASH_XXH3 ? MAGIC_XXH3 : MAGIC_XXH64);
    store64(out + 8, p->seed);
    store32(out + 16, p->segment_length);
    store32(out + 20, p->segment_count);
    store32(out + 24, (uint32_t)p->slots);
    store32(out + 28, (uint32_t)p->n_keys);
}

lookup_status lookup_map_phase(const lookup_map_plan *plan, int phase, int half,
                               const uint64_t *records, void *out, void *scratch) {
    CHECK(plan != NULL && out != NULL && scratch != NULL, LOOKUP_E_ARGUMENT);
    CHECK(records != NULL || plan->n_keys == 0, LOOKUP_E_ARGUMENT);
    CHECK(half == 0 || half == 1, LOOKUP_E_ARGUMENT);
    build b = carve(plan, out, scratch);
    bool work = plan->n_keys > 0;
    switch (phase) {
    case 0: clear_half(&b, half); return LOOKUP_OK;
    case 1: return work && half == 0 ? partition(&b, records) : LOOKUP_OK;
    case 2: if (work) populate(&b, half); return LOOKUP_OK;
    case 3: if (work && half == 0) populate(&b, 2); return LOOKUP_OK;
    case 4: if (work) peel_half(&b, half); return LOOKUP_OK;
    case 5:
        if (!work || half != 0) return LOOKUP_OK;
        TRY(peel_middle(&b));
        for (uint64_t i = b.head->middle; i-- > 0;) assign(&b, b.head->peeled[0] + i);
        return LOOKUP_OK;
    case 6: if (work) assign_half(&b, half); return LOOKUP_OK;
    case 7:
        if (half != 0) return LOOKUP_OK;
        write_header(&b, out);
        size_t body = (size_t)plan->map_bytes - 8;
        store64((unsigned char *)out + body, lookup_fnv1a(0xcbf29ce484222325ull, out, body));
        return LOOKUP_OK;
    default: return LOOKUP_E_ARGUMENT;
    }
}
