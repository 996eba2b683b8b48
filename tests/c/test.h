/* A test is a function without arguments; EXPECT marks it failed and goes on, REQUIRE leaves it. */
#ifndef TEST_H
#define TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPECT(cond) ((cond) ? (void)0 : test_fault(__FILE__, __LINE__, #cond))
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            test_fault(__FILE__, __LINE__, #cond);                                                 \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define RUN(test) test_run(#test, test)

void test_fault(const char *file, int line, const char *what);
void test_run(const char *name, void (*test)(void));
/* Prints "N passed, N failed"; the exit status. */
int test_summary(void);

/* A repeatable stream of numbers. */
typedef struct {
    uint64_t state;
} rng;
uint64_t rng_next(rng *r);
uint64_t rng_below(rng *r, uint64_t limit);

/* Memory of exactly `size` bytes, so that the sanitizer sees a read one byte past it. Ends the
 * program if there is none; test_free takes it back. */
void *test_memory(size_t size);
void *test_copy(const void *from, size_t size);
void test_free(void *p);

#endif
