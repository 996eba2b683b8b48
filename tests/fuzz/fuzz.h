/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput in it: libFuzzer
 * calls it with inputs it makes up (`make fuzz`), tests/c/replay.c with stored ones (`make c-check`). */
#ifndef FUZZ_H
#define FUZZ_H

#include "support.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program: the input that led here is a finding. */
#define MUST(cond) ((cond) ? (void)0 : fuzz_fault(__FILE__, __LINE__, #cond))
void fuzz_fault(const char *file, int line, const char *what);

/* An input read from its start; behind its end it is all zeros. */
typedef struct {
    const uint8_t *at, *end;
} input;
input input_of(const uint8_t *data, size_t size);
size_t left(const input *in);
uint32_t take(input *in);                 /* a byte */
uint64_t take_word(input *in);            /* eight, little-endian */
int32_t take_token(input *in, int32_t vocab);
/* `n` tokens below `vocab` in memory of exactly their size. */
int32_t *take_tokens(input *in, size_t n, int32_t vocab);

#endif
