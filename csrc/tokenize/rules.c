/* The families, and the classes of characters by which they split. */
#include "rules.h"

#include "unicode.h"

static const range deepseek_letters[] = {
    {0x41, 0x5a}, {0x61, 0x7a}, {0xb5, 0xb5}, {0xc0, 0xd6}, {0xd8, 0xf6}, {0xf8, 0x1ba}, {0x1bc,
    0x1bf}, {0x1c4, 0x293}, {0x295, 0x2af}, {0x370, 0x373}, {0x376, 0x376}, {0x377, 0x377},
    {0x37b, 0x37d}, {0x37f, 0x37f}, {0x386, 0x386}, {0x388, 0x38a}, {0x38c, 0x38c}, {0x38e,
    0x3a1}, {0x3a3, 0x3f5}, {0x3f7, 0x481}, {0x48a, 0x52f}, {0x531, 0x556}, {0x10a0, 0x10c5},
    {0x13a0, 0x13f5}, {0x13f8, 0x13fd}, {0x1c90, 0x1cba}, {0x1cbd, 0x1cbf}, {0x1d00, 0x1d2b},
    {0x1d6b, 0x1d77}, {0x1d79, 0x1d9a}, {0x1e00, 0x1f15}, {0x1f18, 0x1f1d}, {0x1f20, 0x1f45},
    {0x1f48, 0x1f4d}, {0x1f50, 0x1f57}, {0x1f59, 0x1f59}, {0x1f5b, 0x1f5b}, {0x1f5d, 0x1f5d},
    {0x1f5f, 0x1f7d}, {0x1f80, 0x1fb4}, {0x1fb6, 0x1fbc}, {0x1fbe, 0x1fbe}, {0x1fc2, 0x1fc4},
    {0x1fc6, 0x1fcc}, {0x1fd0, 0x1fd3}, {0x1fd6, 0x1fdb}, {0x1fe0, 0x1fec}, {0x1ff2, 0x1ff4},
    {0x1ff6, 0x1ffc}, {0x2102, 0x2102}, {0x2107, 0x2107}, {0x210a, 0x2113}, {0x2115, 0x2115},
    {0x2119, 0x211d}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212a, 0x212d},
    {0x212f, 0x2134}, {0x2139, 0x2139}, {0x213c, 0x213f}, {0x2145, 0x2149}, {0x214e, 0x214e},
    {0x2183, 0x2183}, {0x2184, 0x2184}, {0x2c00, 0x2c7b}, {0x2c7e, 0x2ce4}, {0x2ceb, 0x2cee},
    {0x2cf2, 0x2cf2}, {0x2cf3, 0x2cf3}, {0xa640, 0xa66d}, {0xa680, 0xa69b}, {0xa722, 0xa76f},
    {0xa771, 0xa787}, {0xa78b, 0xa78e}, {0xab70, 0xabbf}, {0xfb00, 0xfb06}, {0xfb13, 0xfb17},
    {0xff21, 0xff3a}, {0xff41, 0xff5a}, {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8,
    0x104fb}, {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943}, {0, 0}};
static const range deepseek_marks[] = {
    {0x21, 0x2f}, {0x3a, 0x7e}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}, {0x2018, 0x201f}, {0x3000,
    0x3002}, {0, 0}};
static const range deepseek_scripts[] = {
    {0x4e00, 0x9fa5}, {0x800, 0x4e00}, {0xac00, 0xd7ff}, {0, 0}};
static const range deepseek3_scripts[] = {
    {0x4e00, 0x9fa5}, {0x3040, 0x309f}, {0x30a0, 0x30ff}, {0, 0}};
static const range falcon_signs[] = {
    {0x24, 0x24}, {0x2b, 0x2b}, {0x3c, 0x3c}, {0x3d, 0x3d}, {0x3e, 0x3e}, {0x5e, 0x5e}, {0x7e,
    0x7e}, {0x7c, 0x7c}, {0x60, 0x60}, {0, 0}};
static const range default_signs[] = {
    {0x24, 0x24}, {0x2b, 0x2b}, {0x3c, 0x3c}, {0x3d, 0x3d}, {0x3e, 0x3e}, {0x5e, 0x5e}, {0x7e,
    0x7e}, {0x7c, 0x7c}, {0, 0}};
static const range bloom_breaks[] = {
    {0x28, 0x28}, {0x7c, 0x7c}, {0x2e, 0x2e}, {0x2c, 0x2c}, {0x21, 0x21}, {0x3f, 0x3f}, {0x2026,
    0x2026}, {0x3002, 0x3002}, {0xff0c, 0xff0c}, {0x3001, 0x3001}, {0x964, 0x964}, {0x6d4, 0x6d4},
    {0x60c, 0x60c}, {0x29, 0x29}, {0, 0}};
static const range afmoe_scripts[] = {
    {0x4e00, 0x9fff}, {0x3400, 0x4dbf}, {0x8c48, 0xfaff}, {0x3040, 0x309f}, {0x30a0, 0x30ff},
    {0xff65, 0xff9f}, {0x2f00, 0x2fdf}, {0xe40, 0xe7f}, {0xe80, 0xeff}, {0x1780, 0x17ff}, {0x1000,
    0x109f}, {0xaa60, 0xaa7f}, {0xa9e0, 0xa9ff}, {0xac00, 0xd7af}, {0x1100, 0x11ff}, {0, 0}};

#define ALL UINT32_MAX
#define GPT2_STEP {GPT2, 0, 0, 0}
#define NUMBERS(max) {RUNS, 0, N, max}
#define WORDS_STEP(max) {WORDS, SHORTENED | TRAILING, 0, max}
#define TRIPLES {TRIPLE, 0, 0, 0}
#define END {DONE, 0, 0, 0}

static const struct rules families[] = {
    {"gpt-2", BYTE_LEVEL, {0}, {GPT2_STEP, END}},
    {"smollm", BYTE_LEVEL, {0}, {NUMBERS(1), GPT2_STEP, END}},
    {"llama-bpe", BYTE_LEVEL, {0}, {WORDS_STEP(3), END}},
    {"dbrx", BYTE_LEVEL, {0}, {WORDS_STEP(3), END}},
    {"glm4", BYTE_LEVEL, {0}, {WORDS_STEP(3), END}},
    {"qwen2", BYTE_LEVEL, {0}, {WORDS_STEP(1), END}},
    {"bailingmoe", BYTE_LEVEL, {0}, {WORDS_STEP(1), END}},
    {"qwen35", BYTE_LEVEL, {0}, {{WORDS, SHORTENED | TRAILING | MARKS, 0, 1}, END}},
    {"seed-coder", BYTE_LEVEL, {0}, {{WORDS, SHORTENED, NL, 1}, END}},
    {"ufakzeka", BYTE_LEVEL, {0}, {{WORDS, TRAILING, 0, 1}, END}},
    {"minicpm5", BYTE_LEVEL, {0}, {NUMBERS(3), WORDS_STEP(ALL), END}},
    {"laguna", BYTE_LEVEL, {0}, {{LINES, 0, 0, 0}, WORDS_STEP(1), END}},
    {"falcon", BYTE_LEVEL, {falcon_signs}, {{RUNS, 0, P | SET1, ALL}, GPT2_STEP, TRIPLES, END}},
    {"default", BYTE_LEVEL, {default_signs},
     {{RUNS, 0, P | SET1, ALL}, GPT2_STEP, NUMBERS(ALL), TRIPLES, END}},
    {"deepseek-llm", BYTE_LEVEL, {deepseek_letters, deepseek_marks, deepseek_scripts},
     {{RUNS, 0, NL, 1}, {SPACED, 0, SET1, 0}, {SPACED, 0, SET2, 0}, {TAIL, 0, 0, 0},
      {RUNS, 0, SET3, ALL}, NUMBERS(ALL), END}},
    {"deepseek-coder", BYTE_LEVEL, {deepseek_scripts},
     {{RUNS, 0, NL, 1}, {SPACED, 0, L, 0}, {SPACED, 0, P, 0}, {RUNS, 0, SET1, ALL}, NUMBERS(1), END}},
    {"deepseek-v3", BYTE_LEVEL, {deepseek3_scripts},
     {NUMBERS(3), {RUNS, 0, SET1, ALL}, {MARKED, TRAILING, 0, 0}, END}},
    {"spark2_5", BYTE_LEVEL, {deepseek3_scripts},
     {NUMBERS(3), {RUNS, 0, SET1, ALL}, {MARKED, 0, 0, 0}, NUMBERS(1), END}},
    {"afmoe", BYTE_LEVEL, {afmoe_scripts},
     {{GROUPS, 0, 0, 0}, {RUNS, 0, SET1, ALL}, {MARKED, TRAILING, 0, 0}, END}},
    {"tekken", BYTE_LEVEL, {0}, {{CASED, 0, 0, 1}, END}},
    {"gpt-4o", BYTE_LEVEL, {0}, {{CASED, SHORTENED, 0, 3}, END}},
    {"granite-embed-multi-97m", BYTE_LEVEL, {0}, {{CASED, SHORTENED | MARKS, 0, 3}, END}},
    {"tiny_aya", BYTE_LEVEL, {0},
     {{GROUPS, 0, 0, 0}, {CASED, SHORTENED | MARKS | ONE_CASE, 0, 3}, END}},
    {"bloom", BYTE_LEVEL, {bloom_breaks}, {{BLOOM, 0, 0, 0}, END}},
    {"viking", BYTE_LEVEL, {bloom_breaks}, {{BLOOM, 0, 0, 0}, NUMBERS(1), END}},
    {"spm", SENTENCEPIECE, {0}, {{JOINED, 0, 0, 0}, END}},
};

int32_t lookup_tokenizer_rules(const char *family) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].family, family) == 0) return (int32_t)i;
    return -1;
}

const struct rules *lookup_tokenize_rules_at(int32_t index) {
    bool known = index >= 0 && (size_t)index < sizeof families / sizeof *families;
    return known ? &families[index] : NULL;
}

scheme lookup_tokenize_scheme_of(const struct rules *rules) { return rules->scheme; }

/* White space beyond ASCII is in no set: llama.cpp turns it into a vertical tab before it looks. */
void lookup_tokenize_fill_classes(const struct rules *rules, uint16_t *classes) {
    static const uint16_t kinds[] = {IN, IN | L, IN | N, IN | P, IN | M, IN | SYM, IN | S};
    size_t count = sizeof unicode_ranges / sizeof *unicode_ranges;
    for (size_t i = 0; i < count; i++) {
        uint32_t to = i + 1 < count ? unicode_ranges[i + 1] >> 3 : CODE_POINTS;
        for (uint32_t c = unicode_ranges[i] >> 3; c < to; c++)
            classes[c] = kinds[unicode_ranges[i] & 7];
    }
    classes['\r'] |= NL;
    classes['\n'] |= NL;
    for (unsigned k = 0; k < 3; k++)
        for (const range *r = rules->sets[k]; r && r->first; r++)
            for (uint32_t c = r->first; c <= r->last; c++)
                if (!(classes[c] & S)) classes[c] |= (uint16_t)(SET1 << k);
}
