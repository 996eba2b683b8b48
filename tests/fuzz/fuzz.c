#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

void fuzz_fault(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
    abort();
}

input input_of(const uint8_t *data, size_t size) { return (input){data, size ? data + size : data}; }
size_t left(const input *in) { return (size_t)(in->end - in->at); }
uint32_t take(input *in) { return in->at < in->end ? *in->at++ : 0; }

uint64_t take_word(input *in) {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= (uint64_t)take(in) << (8 * i);
    return word;
}

int32_t take_token(input *in, int32_t vocab) {
    uint32_t token = take(in);
    if (vocab > 256) token |= take(in) << 8;
    return (int32_t)(token % (uint32_t)vocab);
}

int32_t *take_tokens(input *in, size_t n, int32_t vocab) {
    int32_t *tokens = test_memory(4 * n);
    for (size_t i = 0; i < n; ++i) tokens[i] = take_token(in, vocab);
    return tokens;
}
