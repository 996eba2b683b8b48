/* FNV-1a-64, the checksum of serialized maps: the definition, and a fast way to the same number.
 *
 * One step is h' = (h ^ b) * p. The xor reaches the low byte l of h alone, and l evolves by itself:
 * l' = (l ^ b) * (p mod 256) mod 256. With all l known, h ^ b = h + d for d = (l ^ b) - l, so that
 *     h_N = h_0 p^N + sum of d_i p^(N-i)    (mod 2^64),
 * a dot product with constants. What is left is to find l without going byte by byte.
 *
 * A chunk is cut into SEGMENTS segments that run side by side, one a vector lane. Their first low
 * bytes are found two bits at a time, lowest first. Bit k after a segment is bit k before it xor a
 * function of the lower bits (only carries go up), so a run from a start whose bits below k are
 * right and whose others are 0 gives that function's value, e_k, for every segment at once. Since
 * p mod 4 = 3, flipping bit k at the start flips bit k+1 in every step whose product has a 0 at bit
 * k when bit k of the factor is cleared. Summed over a segment of even length this telescopes to
 * e_k ^ (xor of the input's bits k), so the same run also settles bit k+1. Bits 0 and 1 need no run:
 * they are parities of the input. Three short runs over a chunk and one with the dot product cost
 * far less than a multiplication's latency for each byte. */
#include "internal.h"

#define PRIME 0x100000001b3ull

uint64_t lookup_fnv1a_serial(uint64_t state, const void *data, size_t size) {
    const unsigned char *p = data;
    for (size_t i = 0; i < size; ++i) state = (state ^ p[i]) * PRIME;
    return state;
}

#if !defined(__GNUC__) /* no vector types: the definition is the implementation */

uint64_t lookup_fnv1a(uint64_t state, const void *data, size_t size) {
    return lookup_fnv1a_serial(state, data, size);
}

#else

#define LANES 8
#define ROWS 8 /* vectors run at a time: enough to cover a multiplication's latency */
#define SEGMENTS (LANES * ROWS)
#define LENGTH 128 /* bytes a segment; the most for which the dot product's sums fit 32 bits */
#define WORDS (LENGTH / 2)
#define CHUNK ((size_t)SEGMENTS * LENGTH)
#define LIMBS 4
#define LOW_PRIME ((uint16_t)(PRIME & 0xff))

typedef uint16_t v8 __attribute__((vector_size(16)));
typedef int32_t v4 __attribute__((vector_size(16)));
typedef uint32_t v4u __attribute__((vector_size(16)));

#if defined(__clang__)
#define LOW_HALVES(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_HALVES(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define LOW_HALVES(a, b) __builtin_shuffle(a, b, (v8){0, 8, 1, 9, 2, 10, 3, 11})
#define HIGH_HALVES(a, b) __builtin_shuffle(a, b, (v8){4, 12, 5, 13, 6, 14, 7, 15})
#endif

#if defined(__SSE2__)
#include <emmintrin.h>
/* Products of signed 16-bit lanes, neighbours added. */
INLINE v4 multiply_add(v8 a, v8 b) { return (v4)_mm_madd_epi16((__m128i)a, (__m128i)b); }
#else
INLINE v4 multiply_add(v8 a, v8 b) {
    v4 a0 = (v4)((v4u)a << 16) >> 16, a1 = (v4)a >> 16;
    v4 b0 = (v4)((v4u)b << 16) >> 16, b1 = (v4)b >> 16;
    return a0 * b0 + a1 * b1;
}
#endif

/* A chunk, transposed: words[i][r] lane q holds bytes 2i and 2i+1 of segment LANES*r + q. */
typedef struct {
    v8 words[WORDS][ROWS];
    uint16_t xors[SEGMENTS];  /* xor of a segment's words */
    uint16_t starts[SEGMENTS]; /* its first low byte, as far as known */
    uint16_t ends[SEGMENTS];  /* the low byte after it, from that start; the high byte is noise */
} chunk;

/* p^(LENGTH-i) for the odd and p^(2*LENGTH-i) for the even one of two neighbouring segments, as
 * signed 16-bit limbs. */
typedef struct {
    v8 limbs[LENGTH][LIMBS];
    uint64_t pair; /* p^(2*LENGTH) */
} powers;

INLINE v8 load_lanes(const void *p) {
    v8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void set_limbs(v8 *limbs, uint64_t even, uint64_t odd) {
    for (int k = 0; k < LIMBS; ++k) {
        uint16_t a = (uint16_t)even, b = (uint16_t)odd;
        limbs[k] = (v8){a, b, a, b, a, b, a, b};
        even = (even >> 16) + (a >> 15); /* a limb above 2^15 counts as negative: carry it */
        odd = (odd >> 16) + (b >> 15);
    }
}

static void set_powers(powers *p) {
    uint64_t odd = 1, even = 1;
    for (int i = 0; i < LENGTH; ++i) even *= PRIME;
    for (int i = LENGTH - 1; i >= 0; --i) {
        odd *= PRIME;
        even *= PRIME;
        set_limbs(p->limbs[i], even, odd);
    }
    p->pair = even;
}

static void transpose(chunk *c, const unsigned char *data) {
    for (int r = 0; r < ROWS; ++r) {
        v8 all = {0};
        for (int i = 0; i < WORDS; i += 8) {
            v8 a[8], b[8];
            for (int q = 0; q < 8; ++q) a[q] = load_lanes(data + LENGTH * (LANES * r + q) + 2 * i);
            for (int round = 0; round < 3; ++round) {
                for (int q = 0; q < 4; ++q) {
                    b[2 * q] = LOW_HALVES(a[q], a[q + 4]);
                    b[2 * q + 1] = HIGH_HALVES(a[q], a[q + 4]);
                }
                memcpy(a, b, sizeof a);
            }
            for (int q = 0; q < 8; ++q) {
                c->words[i + q][r] = a[q];
                all ^= a[q];
            }
        }
        memcpy(c->xors + LANES * r, &all, sizeof all);
    }
}

/* Bits 0 and 1 of every start. Bit 0 is the parity of all bits 0 before it. Bit 1 also gains bit 0
 * of l ^ b in each step; over an even length that sums to the parity of bits 0 at odd places. */
static void settle_parities(chunk *c, unsigned low) {
    for (int j = 0; j < SEGMENTS; ++j) {
        unsigned odd = c->xors[j] >> 8, all = (c->xors[j] ^ odd) & 0xff;
        c->starts[j] = (uint16_t)(low & 3);
        low ^= all ^ ((odd & 1) << 1);
    }
}

/* Runs all segments' low bytes from their starts to their ends. Meanwhile the caches fetch the next
 * chunk's half `ahead`, whose strided order the hardware does not foresee. */
static void run(chunk *c, const unsigned char *ahead) {
    v8 s[ROWS];
    memcpy(s, c->starts, sizeof s);
    for (int i = 0; i < WORDS; ++i) {
        PREFETCH(ahead + 64 * i);
        for (int r = 0; r < ROWS; ++r) {
            v8 w = c->words[i][r];
            s[r] = (s[r] ^ w) * LOW_PRIME;
            s[r] = (s[r] ^ (w >> 8)) * LOW_PRIME;
        }
    }
    memcpy(c->ends, s, sizeof s);
}

/* Bits k and k+1 of every start, from a run in which they were 0. */
static void settle(chunk *c, unsigned low, int k) {
    unsigned one = 1u << k, two = 3u << k, s = low & two;
    for (int j = 0; j < SEGMENTS; ++j) {
        unsigned end = c->ends[j], all = c->xors[j] ^ ((unsigned)c->xors[j] >> 8);
        c->starts[j] = (uint16_t)(c->starts[j] | s);
        s = (s ^ end ^ ((s & (end ^ all) & one) << 1)) & two;
    }
}

/* One byte of two rows, `b`, in the last run: every d times its power. Two rows hide the latency of
 * each other's multiplications and still leave their sums in registers. */
INLINE void dot_step(const v8 *b, v8 *s, const v8 *limbs, v4 (*sums)[LIMBS]) {
    v8 both0 = s[0] & b[0], both1 = s[1] & b[1];
    v8 d0 = b[0] - (both0 + both0), d1 = b[1] - (both1 + both1); /* (s ^ b) - s in the low byte */
    s[0] = (s[0] ^ b[0]) * LOW_PRIME;
    s[1] = (s[1] ^ b[1]) * LOW_PRIME;
    for (int k = 0; k < LIMBS; ++k) {
        sums[0][k] += multiply_add(d0, limbs[k]);
        sums[1][k] += multiply_add(d1, limbs[k]);
    }
}

static uint64_t dot(const chunk *c, const powers *p, uint64_t state) {
    for (int r = 0; r < ROWS; r += 2) {
        v8 s[2];
        v4 sums[2][LIMBS] = {{{0}}};
        memcpy(s, c->starts + LANES * r, sizeof s);
        for (int i = 0; i < WORDS; ++i) {
            v8 w0 = c->words[i][r], w1 = c->words[i][r + 1];
            v8 first[2] = {w0 & 0xff, w1 & 0xff}, second[2] = {w0 >> 8, w1 >> 8};
            dot_step(first, s, p->limbs[2 * i], sums);
            dot_step(second, s, p->limbs[2 * i + 1], sums);
        }
        for (int q = 0; q < LANES; ++q) {
            uint64_t sum = 0;
            for (int k = LIMBS - 1; k >= 0; --k) sum = (sum << 16) + (uint64_t)(int64_t)sums[q / 4][k][q % 4];
            state = state * p->pair + sum;
        }
    }
    return state;
}

/* `next` is the chunk after this one, or this one if it is the last. */
static uint64_t one_chunk(chunk *c, const powers *p, uint64_t state, const unsigned char *data,
                          const unsigned char *next) {
    unsigned low = (unsigned)(state & 0xff);
    transpose(c, data);
    settle_parities(c, low);
    for (int k = 2; k < 8; k += 2) {
        run(c, next + (k == 2 ? 0 : CHUNK / 2));
        settle(c, low, k);
    }
    return dot(c, p, state);
}

uint64_t lookup_fnv1a(uint64_t state, const void *data, size_t size) {
    const unsigned char *at = data;
    if (size >= CHUNK) { /* the powers pay from the first chunk on */
        chunk c;
        powers p;
        set_powers(&p);
        for (; size >= CHUNK; size -= CHUNK, at += CHUNK)
            state = one_chunk(&c, &p, state, at, size >= 2 * CHUNK ? at + CHUNK : at);
    }
    return lookup_fnv1a_serial(state, at, size);
}

#endif
