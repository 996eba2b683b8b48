/* Runs a fuzz target (tests/fuzz) without a fuzzer: on stored files, then on seeded mutations of
 * them. Meant for the sanitizers; without them it still finds crashes, hangs and wrong answers.
 *
 *   fuzz_TARGET [-seed N] [-rounds N] [-save FILE] FILE...
 *
 * `-save` writes each mutation down before it runs, so that the last one is the one that failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rng dice = {1};
static long rounds = 2000;
static const char *save;
static char **paths;
static size_t n_paths;

static blob read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    blob b = {NULL, 0};
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        printf("%s: cannot be read\n", path);
        exit(2);
    }
    b.size = (size_t)ftell(file);
    b.data = test_memory(b.size);
    rewind(file);
    EXPECT(fread(b.data, 1, b.size, file) == b.size);
    fclose(file);
    return b;
}

static void overwrite(unsigned char *p, size_t size) {
    static const uint64_t EDGES[] = {0, 1, 3, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000u, 0xffffffffu, 1ull << 40, UINT64_MAX};
    size_t at = rng_below(&dice, size), width = (size_t)1 << rng_below(&dice, 4);
    uint64_t value = EDGES[rng_below(&dice, sizeof EDGES / sizeof *EDGES)];
    if (width > size - at) width = size - at;
    memcpy(p + at, &value, width);
}

/* A changed copy of exactly its own size. */
static blob mutated(const blob *from) {
    size_t size = from->size;
    switch (rng_below(&dice, 8)) {
    case 0: size = rng_below(&dice, size + 1); break;
    case 1: size += 1 + rng_below(&dice, 40); break;
    default: break;
    }
    blob b = {test_memory(size), size};
    for (size_t i = 0; i < size; ++i) b.data[i] = i < from->size ? from->data[i] : (unsigned char)rng_next(&dice);
    for (uint64_t changes = rng_below(&dice, 5); changes > 0 && size > 0; --changes) {
        size_t near = rng_below(&dice, 2) && size > 64 ? 64 : size; /* headers matter most */
        if (rng_below(&dice, 2)) overwrite(b.data, near);
        else b.data[rng_below(&dice, near)] ^= (unsigned char)(1u << rng_below(&dice, 8));
    }
    return b;
}

static void write_file(const char *path, const blob *b) {
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL);
    EXPECT(fwrite(b->data, 1, b->size, file) == b->size);
    EXPECT(fclose(file) == 0);
}

static void stored_files(void) {
    REQUIRE(n_paths > 0);
    for (size_t i = 0; i < n_paths; ++i) {
        if (getenv("TEST_VERBOSE") != NULL) puts(paths[i]);
        fflush(stdout);
        blob b = read_file(paths[i]);
        EXPECT(LLVMFuzzerTestOneInput(b.data, b.size) == 0);
        blob_free(&b);
    }
}

static void mutations(void) {
    for (long i = 0; i < rounds && n_paths > 0; ++i) {
        blob file = read_file(paths[(size_t)i % n_paths]), b = mutated(&file);
        if (save != NULL) write_file(save, &b);
        EXPECT(LLVMFuzzerTestOneInput(b.data, b.size) == 0);
        blob_free(&file);
        blob_free(&b);
    }
}

int main(int argc, char **argv) {
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (strcmp(argv[at], "-seed") == 0) dice.state = strtoull(argv[at + 1], NULL, 0);
        else if (strcmp(argv[at], "-rounds") == 0) rounds = atol(argv[at + 1]);
        else if (strcmp(argv[at], "-save") == 0) save = argv[at + 1];
        else break;
    }
    paths = argv + at;
    n_paths = (size_t)(argc - at);
    RUN(stored_files);
    RUN(mutations);
    const char *name = strrchr(argv[0], '/');
    printf("%s: %lu stored files and %ld mutations\n", name ? name + 1 : argv[0], (unsigned long)n_paths, rounds);
    return test_summary();
}
