/* XXH64 of whole buffers, and the key hashes by name. The eight-byte forms are in internal.h,
 * where the lookups inline them. Source: the XXH64 specification. */
#include "internal.h"

static const uint64_t P1 = 0x9E3779B185EBCA87ull, P2 = 0xC2B2AE3D27D4EB4Full;
static const uint64_t P3 = 0x165667B19E3779F9ull, P4 = 0x85EBCA77C2B2AE63ull;
static const uint64_t P5 = 0x27D4EB2F165667C5ull;

static uint64_t rotl(uint64_t x, int r) { return (x << r) | (x >> (64 - r)); }
static uint64_t xround(uint64_t acc, uint64_t word) { return rotl(acc + word * P2, 31) * P1; }
static uint64_t fold(uint64_t h, uint64_t acc) { return (h ^ xround(0, acc)) * P1 + P4; }

static void start(uint64_t lanes[4], uint64_t seed) {
    lanes[0] = seed + P1 + P2;
    lanes[1] = seed + P2;
    lanes[2] = seed;
    lanes[3] = seed - P1;
}

/* Whole 32-byte stripes; returns how many bytes they were. */
static size_t stripes(uint64_t lanes[4], const unsigned char *p, size_t size) {
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
    size_t done = 0;
    for (; size - done >= 32; done += 32, p += 32) {
        a = xround(a, load64(p));
        b = xround(b, load64(p + 8));
        c = xround(c, load64(p + 16));
        d = xround(d, load64(p + 24));
    }
    lanes[0] = a;
    lanes[1] = b;
    lanes[2] = c;
    lanes[3] = d;
    return done;
}

static uint64_t join(const uint64_t lanes[4]) {
    uint64_t h = rotl(lanes[0], 1) + rotl(lanes[1], 7) + rotl(lanes[2], 12) + rotl(lanes[3], 18);
    for (int k = 0; k < 4; ++k) h = fold(h, lanes[k]);
    return h;
}

/* The up to 31 bytes after the last stripe, and the final mixing. */
static uint64_t finish(uint64_t h, const unsigned char *p, size_t size) {
    const unsigned char *end = p + size;
    for (; end - p >= 8; p += 8) h = rotl(h ^ xround(0, load64(p)), 27) * P1 + P4;
    for (; end - p >= 4; p += 4) h = rotl(h ^ load32(p) * P1, 23) * P2 + P3;
    for (; p < end; ++p) h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ (h >> 33)) * P2;
    h = (h ^ (h >> 29)) * P3;
    return h ^ (h >> 32);
}

uint64_t lookup_xxh64(const void *data, size_t size, uint64_t seed) {
    const unsigned char *p = size ? data : (const void *)"";
    uint64_t lanes[4];
    start(lanes, seed);
    size_t done = stripes(lanes, p, size);
    return finish((done ? join(lanes) : seed + P5) + size, p + done, size - done);
}

void lookup_xxh64_update(lookup_xxh64_state *s, const void *data, size_t size) {
    if (size == 0) return;
    const unsigned char *p = data;
    size_t held = s->total % 32;
    if (s->total == 0) start(s->lanes, 0);
    s->total += size;
    if (held != 0) {
        size_t take = size < 32 - held ? size : 32 - held;
        memcpy(s->rest + held, p, take);
        p += take;
        size -= take;
        if (held + take == 32) stripes(s->lanes, s->rest, 32);
        else return;
    }
    size_t done = stripes(s->lanes, p, size);
    if (size > done) memcpy(s->rest, p + done, size - done);
}

uint64_t lookup_xxh64_digest(const lookup_xxh64_state *s) {
    uint64_t h = s->total >= 32 ? join(s->lanes) : P5;
    return finish(h + s->total, s->rest, s->total % 32);
}

uint64_t lookup_key_xxh64(int32_t t0, int32_t t1) { return xxh64_key8(key_of(t0, t1)); }
uint64_t lookup_key_xxh3(int32_t t0, int32_t t1) { return xxh3_key8(key_of(t0, t1)); }
