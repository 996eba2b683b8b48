/* What ngram-adaptive learned, as bytes: the same on every machine.
 *
 *   offset  0  magic "lkadapt1"       8  version u32, kind u32
 *          16  vocabulary u64        24  observations u64
 *          32  payload bytes u64     40  payload, then FNV-1a u64 of all before
 *
 * A prior holds what is not about single tokens, each section as a bitmap of the values that differ
 * from those before any text, then these values in 16 bits (and 8 bits of trials). What was learned
 * in full is written as it lies in memory. */
#include <stddef.h>

#include "adaptive_group.h"

#define MAGIC 0x3174706164616b6cull /* "lkadapt1" */
#define VERSION 1u
#define HEAD 40u
#define WEIGHT_UNIT (1.0f / 2048)
#define MOST_TRIALS 255u
#define FNV_START 0xcbf29ce484222325ull

typedef enum { WEIGHTS, MEANS, RATES } kind_of_values;
typedef struct {
    size_t offset, n;
    kind_of_values kind;
} section;

#define SECTION(name, type, kind) {offsetof(learned, name), sizeof(((learned *)0)->name) / sizeof(type), kind}
static const section SECTIONS[] = {
    SECTION(by_match, float, WEIGHTS), SECTION(by_support, float, WEIGHTS), SECTION(by_evidence, float, WEIGHTS),
    SECTION(by_alignment, float, WEIGHTS), SECTION(level, float, WEIGHTS), SECTION(recent, float, WEIGHTS),
    SECTION(corrections, mean, MEANS), SECTION(aligned_corrections, mean, MEANS), SECTION(grams, rate, RATES),
    SECTION(exact, rate, RATES), SECTION(aligned, rate, RATES), SECTION(edited, rate, RATES)};
#define N_SECTIONS (sizeof SECTIONS / sizeof *SECTIONS)

typedef struct {
    uint16_t value;
    uint8_t trials;
} packed;

static int32_t rounded(float x) { return (int32_t)(x < 0 ? x - 0.5f : x + 0.5f); }

/* A value that can be left out packs to false. */
static bool pack(const void *base, const void *fresh, const section *s, size_t i, packed *out) {
    if (s->kind == WEIGHTS) {
        int32_t units = rounded((((const float *)base)[i] - ((const float *)fresh)[i]) / WEIGHT_UNIT);
        units = units < -32767 ? -32767 : units > 32767 ? 32767 : units;
        *out = (packed){.value = (uint16_t)units};
        return units != 0;
    }
    uint32_t trials, p;
    if (s->kind == MEANS) {
        const mean *m = &((const mean *)base)[i];
        trials = (uint32_t)(m->n + 0.5f);
        p = (uint32_t)rounded(m->p * 65535.0f);
    } else {
        rate r = ((const rate *)base)[i];
        trials = r & 1023u;
        p = r >> 16;
    }
    *out = (packed){.value = (uint16_t)p, .trials = (uint8_t)(trials < MOST_TRIALS ? trials : MOST_TRIALS)};
    return trials != 0;
}

static void unpack(void *base, const section *s, size_t i, packed x, uint32_t cap) {
    uint32_t trials = cap != 0 && x.trials > cap ? cap : x.trials;
    if (s->kind == WEIGHTS) ((float *)base)[i] += (float)(int16_t)x.value * WEIGHT_UNIT;
    else if (s->kind == MEANS) ((mean *)base)[i] = (mean){.p = (float)x.value * (1.0f / 65535), .n = (float)trials};
    else ((rate *)base)[i] = (uint32_t)x.value << 16 | trials;
}

/* Writes the sections to `out`, or only measures them if that is NULL. */
static size_t pack_all(const learned *k, const learned *fresh, uint8_t *out) {
    size_t used = 0;
    for (size_t c = 0; c < N_SECTIONS; ++c) {
        const section *s = &SECTIONS[c];
        const char *base = (const char *)k + s->offset, *first = (const char *)fresh + s->offset;
        size_t map = used;
        if (out != NULL) memset(out + map, 0, (s->n + 7) / 8);
        used += (s->n + 7) / 8;
        for (size_t i = 0; i < s->n; ++i) {
            packed x;
            if (!pack(base, first, s, i, &x)) continue;
            if (out != NULL) {
                out[map + i / 8] |= (uint8_t)(1u << (i % 8));
                memcpy(out + used, &x.value, 2);
                if (s->kind != WEIGHTS) out[used + 2] = x.trials;
            }
            used += s->kind == WEIGHTS ? 2 : 3;
        }
    }
    return used;
}

static lookup_status unpack_all(learned *k, const uint8_t *data, size_t size, uint32_t cap) {
    size_t used = 0;
    for (size_t c = 0; c < N_SECTIONS; ++c) {
        const section *s = &SECTIONS[c];
        size_t map = used, each = s->kind == WEIGHTS ? 2 : 3;
        CHECK((s->n + 7) / 8 <= size - used, LOOKUP_E_TRUNCATED);
        used += (s->n + 7) / 8;
        for (size_t i = 0; i < s->n; ++i) {
            packed x = {0, 0};
            if ((data[map + i / 8] >> (i % 8) & 1) == 0) continue;
            CHECK(each <= size - used, LOOKUP_E_TRUNCATED);
            memcpy(&x.value, data + used, 2);
            if (each == 3) x.trials = data[used + 2];
            if (k != NULL) unpack((char *)k + s->offset, s, i, x, cap);
            used += each;
        }
    }
    return used == size ? LOOKUP_OK : LOOKUP_E_TRUNCATED;
}

static lookup_status payload_size(const lookup_adaptive *g, int32_t kind, size_t *size) {
    CHECK(kind == LOOKUP_STATE_PRIOR || kind == LOOKUP_STATE_LEARNED, LOOKUP_E_ARGUMENT);
    *size = sizeof(learned);
    if (kind == LOOKUP_STATE_LEARNED) return LOOKUP_OK;
    learned *fresh = lookup_alloc(1, sizeof *fresh);
    CHECK(fresh != NULL, LOOKUP_E_MEMORY);
    lookup_adaptive_learned_init(fresh, &g->tables);
    *size = pack_all(g->learned, fresh, NULL);
    lookup_free(fresh);
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_state_size(const lookup_adaptive *g, int32_t kind, size_t *size) {
    CHECK(g != NULL && size != NULL, LOOKUP_E_ARGUMENT);
    size_t payload;
    TRY(payload_size(g, kind, &payload));
    *size = HEAD + payload + 8;
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_state_save(const lookup_adaptive *g, int32_t kind, uint64_t vocabulary, void *out, size_t size) {
    CHECK(g != NULL && out != NULL, LOOKUP_E_ARGUMENT);
    size_t payload;
    uint8_t *to = out;
    TRY(payload_size(g, kind, &payload));
    CHECK(size == HEAD + payload + 8, LOOKUP_E_ARGUMENT);
    if (kind == LOOKUP_STATE_PRIOR) {
        learned *fresh = lookup_alloc(1, sizeof *fresh);
        CHECK(fresh != NULL, LOOKUP_E_MEMORY);
        lookup_adaptive_learned_init(fresh, &g->tables);
        (void)pack_all(g->learned, fresh, to + HEAD);
        lookup_free(fresh);
    } else {
        memcpy(to + HEAD, g->learned, sizeof *g->learned);
    }
    store64(to, MAGIC);
    store32(to + 8, VERSION);
    store32(to + 12, (uint32_t)kind);
    store64(to + 16, vocabulary);
    store64(to + 24, g->learned->tokens);
    store64(to + 32, payload);
    store64(to + HEAD + payload, lookup_fnv1a(FNV_START, to, HEAD + payload));
    return LOOKUP_OK;
}

lookup_status lookup_adaptive_state_check(const void *data, size_t size, lookup_adaptive_state_info *info) {
    CHECK(data != NULL && info != NULL, LOOKUP_E_ARGUMENT);
    const uint8_t *p = data;
    CHECK(size >= 8 && load64(p) == MAGIC, LOOKUP_E_MAGIC);
    CHECK(size >= HEAD + 8, LOOKUP_E_TRUNCATED);
    CHECK(load32(p + 8) == VERSION, LOOKUP_E_GEOMETRY);
    CHECK(load64(p + 32) == size - HEAD - 8, LOOKUP_E_TRUNCATED);
    CHECK(load64(p + size - 8) == lookup_fnv1a(FNV_START, p, size - 8), LOOKUP_E_CHECKSUM);
    uint32_t kind = load32(p + 12);
    CHECK(kind <= LOOKUP_STATE_LEARNED, LOOKUP_E_GEOMETRY);
    if (kind == LOOKUP_STATE_PRIOR) TRY(unpack_all(NULL, p + HEAD, size - HEAD - 8, 0));
    else CHECK(size == HEAD + sizeof(learned) + 8, LOOKUP_E_TRUNCATED);
    *info = (lookup_adaptive_state_info){.version = VERSION, .kind = (int32_t)kind, .vocabulary = load64(p + 16),
                                         .learned_tokens = load64(p + 24), .bytes = size};
    return LOOKUP_OK;
}

static bool ordinary(float x) { return x > -1e6f && x < 1e6f; } /* refuses nan, too */

/* A forged file may hold any bits; arithmetic must stay with numbers. */
static void tame(learned *k) {
    float *weights = &k->by_match[0][0][0][0];
    size_t n = offsetof(learned, grams) / sizeof *weights;
    for (size_t i = 0; i < n; ++i)
        if (!ordinary(weights[i])) weights[i] = 0;
    for (size_t i = 0; i < sizeof k->said / sizeof *k->said; ++i) {
        if (!ordinary(k->said[i])) k->said[i] = 0;
        if (!ordinary(k->after[i])) k->after[i] = 0;
    }
}

static rate cut_trials(rate r, uint32_t cap) {
    uint32_t trials = r & 1023u, most = cap != 0 && cap < TRIALS_MAX ? cap : TRIALS_MAX;
    return (r & ~1023u) | (trials < most ? trials : most);
}

static void cut_all(learned *k, uint32_t cap) {
    static const size_t ENDS[2][2] = {{offsetof(learned, grams), offsetof(learned, tokens)},
                                      {offsetof(learned, come), offsetof(learned, said)}};
    for (int part = 0; part < 2; ++part)
        for (size_t at = ENDS[part][0]; at + sizeof(rate) <= ENDS[part][1]; at += sizeof(rate)) {
            rate *r = (rate *)(void *)((char *)k + at);
            *r = cut_trials(*r, cap);
        }
}

lookup_status lookup_adaptive_state_load(lookup_adaptive *g, const void *data, size_t size, int32_t cap) {
    CHECK(g != NULL && cap >= 0, LOOKUP_E_ARGUMENT);
    lookup_adaptive_state_info info;
    TRY(lookup_adaptive_state_check(data, size, &info));
    const uint8_t *p = data;
    if (info.kind == LOOKUP_STATE_PRIOR) {
        lookup_adaptive_learned_init(g->learned, &g->tables);
        TRY(unpack_all(g->learned, p + HEAD, size - HEAD - 8, (uint32_t)cap));
    } else {
        memcpy(g->learned, p + HEAD, sizeof *g->learned);
        cut_all(g->learned, (uint32_t)cap);
    }
    tame(g->learned);
    g->learned->tokens = info.learned_tokens;
    memcpy(g->before, g->learned, sizeof *g->learned);
    g->alone = NULL;
    return LOOKUP_OK;
}
