/* hash.c, fnv.c, status.c */
#include <string.h>

#include "lookup_build.h"
#include "second.h"
#include "suites.h"
#include "test.h"

/* fnv.c compiled without SSE2. */
uint64_t twin_fnv1a(uint64_t state, const void *data, size_t size);

#define FNV_START 0xcbf29ce484222325ull

/* XXH64 with seeds 0 and 2654435761 of the buffer that its authors' own self-test generates. */
static const struct {
    size_t size;
    uint64_t plain, seeded;
} XXH64[] = {
    {0, 0xef46db3751d8e999ull, 0xac75fda2929b17efull},
    {1, 0xe934a84adb052768ull, 0x5014607643a9b4c3ull},
    {3, 0xff7e1959cb50794aull, 0xaa8584e83660f7d1ull},
    {4, 0x9136a0dca57457eeull, 0xcaab286bd8e9fdb5ull},
    {7, 0x6c83909a9f01ed25ull, 0xf98d03b1ad6f9293ull},
    {8, 0xcdbcf538e71d1348ull, 0xfe0c047a5353cdacull},
    {14, 0x8282dcc4994e35c8ull, 0xc3bd6bf63deb6df0ull},
    {31, 0x299b39a290e6d783ull, 0xda673d5feb5c1d79ull},
    {32, 0x18b216492bb44b70ull, 0xb3f33bdf93ade409ull},
    {33, 0x55c8dc3e578f5b59ull, 0xe92c292f64bc3071ull},
    {101, 0xa51ea2101b2d114cull, 0x6b38a5bbba1f049cull},
    {222, 0xb641ae8cb691c174ull, 0x20cb8ab7ae10c14aull},
};

static void xxh64_vectors(void) {
    unsigned char buffer[222];
    uint64_t g = 2654435761u;
    for (size_t i = 0; i < sizeof buffer; ++i, g *= 11400714785074694797ull) buffer[i] = (unsigned char)(g >> 56);
    for (size_t i = 0; i < sizeof XXH64 / sizeof *XXH64; ++i) {
        unsigned char *exact = test_copy(buffer, XXH64[i].size);
        EXPECT(lookup_xxh64(exact, XXH64[i].size, 0) == XXH64[i].plain);
        EXPECT(lookup_xxh64(exact, XXH64[i].size, 2654435761u) == XXH64[i].seeded);
        test_free(exact);
    }
    EXPECT(lookup_xxh64(NULL, 0, 0) == XXH64[0].plain);
}

static void xxh64_in_parts(void) {
    rng r = {4};
    unsigned char bytes[200];
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)rng_next(&r);
    for (int round = 0; round < 2000; ++round) {
        lookup_xxh64_state state;
        memset(&state, 0, sizeof state);
        size_t n = rng_below(&r, sizeof bytes + 1), at = 0;
        while (at < n) {
            size_t step = rng_below(&r, round % 2 ? 10 : 80);
            if (step > n - at) step = n - at;
            lookup_xxh64_update(&state, bytes + at, step);
            at += step;
        }
        lookup_xxh64_update(&state, NULL, 0);
        EXPECT(lookup_xxh64_digest(&state) == lookup_xxh64(bytes, n, 0));
    }
}

/* Eight-byte keys, from the reference implementations. */
static void key_hashes(void) {
    static const struct {
        int32_t t0, t1;
        uint64_t xxh64, xxh3;
    } KEYS[] = {
        {0, 0, 0x34c96acdcadb1bbbull, 0xc77b3abb6f87acd9ull},
        {1, 2, 0xcd3d4c871ee4183aull, 0x0389e2c8892d5450ull},
        {151935, 42, 0x3fabeb3a7f99722bull, 0x1b4c1a5eaf8d248cull},
        {2147483647, 2147483647, 0xab811abfceabb4c6ull, 0xcf3a9e5fe552a029ull},
    };
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; ++i) {
        int32_t pair[2] = {KEYS[i].t0, KEYS[i].t1};
        EXPECT(lookup_key_xxh64(pair[0], pair[1]) == KEYS[i].xxh64);
        EXPECT(lookup_xxh64(pair, sizeof pair, 0) == KEYS[i].xxh64);
        EXPECT(lookup_key_xxh3(pair[0], pair[1]) == KEYS[i].xxh3);
    }
}

static void fnv_vectors(void) {
    EXPECT(lookup_fnv1a(FNV_START, NULL, 0) == FNV_START);
    EXPECT(lookup_fnv1a(FNV_START, "a", 1) == 0xaf63dc4c8601ec8cull);
    EXPECT(lookup_fnv1a(FNV_START, "foobar", 6) == 0x85944171f73967e8ull);
    EXPECT(lookup_fnv1a_serial(FNV_START, "foobar", 6) == 0x85944171f73967e8ull);
}

static unsigned char *random_bytes(rng *r, size_t n) {
    unsigned char *bytes = test_memory(n);
    for (size_t i = 0; i < n; ++i) bytes[i] = (unsigned char)rng_next(r);
    return bytes;
}

static void fnv_every_small_size(void) {
    rng r = {1};
    for (size_t n = 0; n <= 1000; ++n) {
        unsigned char *bytes = random_bytes(&r, n);
        uint64_t state = rng_next(&r);
        EXPECT(lookup_fnv1a(state, bytes, n) == lookup_fnv1a_serial(state, bytes, n));
        test_free(bytes);
    }
}

/* Sizes around multiples of the block that the fast path takes at a time, at every alignment. */
static void fnv_blocks_and_alignments(void) {
    rng r = {2};
    const size_t block = 8192, room = 6 * block + 64;
    unsigned char *bytes = random_bytes(&r, room);
    for (size_t blocks = 0; blocks <= 5; ++blocks)
        for (size_t at = 0; at < 33; ++at) {
            size_t n = blocks * block + rng_below(&r, 5);
            n -= n >= 2 ? 2 : 0;
            uint64_t state = rng_next(&r);
            EXPECT(lookup_fnv1a(state, bytes + at, n) == lookup_fnv1a_serial(state, bytes + at, n));
        }
    for (unsigned low = 0; low < 256; ++low) { /* each first low byte: it decides everything */
        uint64_t wanted = lookup_fnv1a_serial(low, bytes, 2 * block);
        EXPECT(lookup_fnv1a(low, bytes, 2 * block) == wanted);
        EXPECT(twin_fnv1a(low, bytes, 2 * block) == wanted);
    }
    test_free(bytes);
}

static void fnv_extreme_bytes(void) {
    const size_t n = 40000;
    const unsigned char fills[] = {0x00, 0xff, 0x80, 0x7f, 0xb3, 0x01};
    for (size_t f = 0; f < sizeof fills; ++f) {
        unsigned char *bytes = test_memory(n);
        memset(bytes, fills[f], n);
        uint64_t states[] = {0, UINT64_MAX, FNV_START, 0x80};
        for (int s = 0; s < 4; ++s) EXPECT(lookup_fnv1a(states[s], bytes, n) == lookup_fnv1a_serial(states[s], bytes, n));
        test_free(bytes);
    }
}

static void fnv_big_and_in_pieces(void) {
    rng r = {3};
    const size_t n = (size_t)5 << 20;
    unsigned char *bytes = random_bytes(&r, n);
    uint64_t whole = lookup_fnv1a_serial(FNV_START, bytes, n), pieces = FNV_START;
    EXPECT(lookup_fnv1a(FNV_START, bytes, n) == whole);
    EXPECT(twin_fnv1a(FNV_START, bytes, n) == whole);
    for (size_t at = 0, step; at < n; at += step) {
        step = 1 + rng_below(&r, 200000);
        if (step > n - at) step = n - at;
        unsigned char *exact = test_copy(bytes + at, step);
        pieces = lookup_fnv1a(pieces, exact, step);
        test_free(exact);
    }
    EXPECT(pieces == whole);
    test_free(bytes);
}

static void every_status_has_its_sentence(void) {
    for (int a = LOOKUP_E_NGRAM; a <= LOOKUP_OK; ++a) {
        const char *sentence = lookup_strerror((lookup_status)a);
        EXPECT(sentence != NULL && strcmp(sentence, "unknown status") != 0);
        for (int b = LOOKUP_E_NGRAM; b < a; ++b) EXPECT(strcmp(sentence, lookup_strerror((lookup_status)b)) != 0);
    }
    EXPECT(strcmp(lookup_strerror((lookup_status)1), "unknown status") == 0);
    EXPECT(second_unit() == LOOKUP_E_ARGUMENT);
    EXPECT(strcmp(second_sentence(LOOKUP_E_SPAN), lookup_strerror(LOOKUP_E_SPAN)) == 0);
}

void suite_hash(void) {
    RUN(xxh64_vectors);
    RUN(xxh64_in_parts);
    RUN(key_hashes);
    RUN(fnv_vectors);
    RUN(fnv_every_small_size);
    RUN(fnv_blocks_and_alignments);
    RUN(fnv_extreme_bytes);
    RUN(fnv_big_and_in_pieces);
    RUN(every_status_has_its_sentence);
}
