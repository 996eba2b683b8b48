#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed, shown;
static const char *current;
static bool faulty;

void test_fault(const char *file, int line, const char *what) {
    if (shown++ < 40) printf("%s:%d: %s: not true: %s\n", file, line, current ? current : "?", what);
    faulty = true;
}

void test_run(const char *name, void (*test)(void)) {
    current = name;
    faulty = false;
    if (getenv("TEST_VERBOSE") != NULL) printf("%s\n", name);
    fflush(stdout); /* so that a crash or a hang can be told from the last line */
    test();
    if (faulty) ++failed;
    else ++passed;
}

int test_summary(void) {
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}

uint64_t rng_next(rng *r) {
    uint64_t z = (r->state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

uint64_t rng_below(rng *r, uint64_t limit) { return rng_next(r) % limit; }

void *test_memory(size_t size) {
    void *p = malloc(size ? size : 1);
    if (p == NULL) {
        puts("no memory for a test");
        exit(2);
    }
    return p;
}

void *test_copy(const void *from, size_t size) {
    void *p = test_memory(size);
    if (size > 0) memcpy(p, from, size);
    return p;
}

void test_free(void *p) { free(p); }
