/* Helpers shared by the C core's own files: loads and stores, checked arithmetic, allocation,
 * early returns. Nothing here is visible outside csrc/. */
#ifndef LOOKUP_INTERNAL_H
#define LOOKUP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../lookup_build.h"

/* Files are little-endian and are read in place, so a big-endian host could only misread them. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "lookup-tools supports little-endian hosts only: cache files are mapped and read in place"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PREFETCH(p) __builtin_prefetch(p)
#define INLINE static inline __attribute__((always_inline))
#else
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
#define INLINE static inline
#endif

#define CHECK(cond, code)                                                                          \
    do {                                                                                           \
        if (UNLIKELY(!(cond))) return (code);                                                      \
    } while (0)
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        lookup_status try_status_ = (expr);                                                        \
        if (UNLIKELY(try_status_ != LOOKUP_OK)) return try_status_;                                \
    } while (0)

/* Allocation goes through this seam alone, so that tests can make any single one fail. */
void *lookup_alloc(size_t count, size_t size);
void *lookup_realloc(void *old, size_t count, size_t size);
void lookup_free(void *p);

/* Fills `error`, if there is one, in printf's manner. */
#if defined(__MINGW32__)
__attribute__((format(gnu_printf, 2, 3)))
#elif defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void lookup_fail(lookup_error *error, const char *format, ...);

INLINE uint64_t load64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE uint32_t load32(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE int32_t load_i32(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store64(void *p, uint64_t v) { memcpy(p, &v, sizeof v); }
INLINE void store32(void *p, uint32_t v) { memcpy(p, &v, sizeof v); }

/* High half of a 64 x 64 bit product. */
INLINE uint64_t mulhi64(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 u128;
    return (uint64_t)(((u128)a * b) >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t mid = a1 * b0 + ((a0 * b0) >> 32);
    uint64_t low = a0 * b1 + (uint32_t)mid;
    return a1 * b1 + (mid >> 32) + (low >> 32);
#endif
}

/* murmur3's 64-bit finalizer: the mixing step of the verified constmap (docs/format.md). */
INLINE uint64_t fmix64(uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
}

INLINE int32_t saturating_add(int32_t a, int64_t b) {
    int64_t sum = (int64_t)a + b;
    return sum > INT32_MAX ? INT32_MAX : (int32_t)sum;
}

INLINE uint64_t xxh64_key8(uint64_t key) {
    const uint64_t p1 = 0x9E3779B185EBCA87ull, p2 = 0xC2B2AE3D27D4EB4Full;
    const uint64_t p3 = 0x165667B19E3779F9ull, p4 = 0x85EBCA77C2B2AE63ull;
    const uint64_t p5 = 0x27D4EB2F165667C5ull;
    uint64_t k = key * p2;
    k = ((k << 31) | (k >> 33)) * p1;
    uint64_t h = (p5 + 8) ^ k;
    h = ((h << 27) | (h >> 37)) * p1 + p4;
    h = (h ^ (h >> 33)) * p2;
    h = (h ^ (h >> 29)) * p3;
    return h ^ (h >> 32);
}

/* XXH3_64 of exactly eight bytes, seed 0 (its 4-to-8-byte path; the constant is two words of the
 * published secret xored). */
INLINE uint64_t xxh3_key8(uint64_t key) {
    uint64_t h = ((key >> 32) | (key << 32)) ^ 0xc73ab174c5ecd5a2ull;
    h ^= ((h << 49) | (h >> 15)) ^ ((h << 24) | (h >> 40));
    h *= 0x9FB21C651E98DF25ull;
    h ^= (h >> 35) + 8;
    h *= 0x9FB21C651E98DF25ull;
    return h ^ (h >> 28);
}

INLINE uint64_t key_of(int32_t t0, int32_t t1) {
    return (uint64_t)(uint32_t)t0 | ((uint64_t)(uint32_t)t1 << 32);
}

#endif
