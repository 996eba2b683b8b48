/* A session of draft sources: begin, draft, accept, truncate in any order, over tiny alphabets. Every
 * call goes to a source (a chain, where there are several) and to the same sources on their own;
 * both must agree, with each other and with the models. */
#include "sources.h"

#include <string.h>

#define LONGEST 400 /* tokens: the models rescan all of them */

typedef struct {
    arrangement a;
    lookup_source *members[MEMBERS], *own[MEMBERS], *first; /* `first` drafts through members */
    size_t last;                                            /* whose draft was the last one */
    int32_t text[LONGEST];
    size_t n;
    bool drafted;
} session;

static void open_session(session *s, input *in) {
    memset(s, 0, sizeof *s);
    arrange(in, &s->a);
    for (size_t i = 0; i < s->a.n_members; ++i) {
        s->members[i] = make_source(&s->a, i);
        s->own[i] = make_source(&s->a, i);
    }
    s->first = s->members[0];
    if (s->a.n_members > 1) MUST(lookup_source_chain(s->members, s->a.n_members, &s->first) == LOOKUP_OK);
}

static void close_session(session *s) {
    if (s->a.n_members > 1) lookup_source_free(s->first);
    for (size_t i = 0; i < s->a.n_members; ++i) {
        lookup_source_free(s->members[i]);
        lookup_source_free(s->own[i]);
    }
    arrangement_free(&s->a);
}

static void append(session *s, const int32_t *tokens, size_t n) {
    if (n > LONGEST - s->n) n = LONGEST - s->n;
    memmove(s->text + s->n, tokens, 4 * n);
    s->n += n;
}

static void begin(session *s, input *in, uint32_t how) {
    int32_t *prompt = NULL;
    if (how & 1) s->n = s->n * take(in) / 255; /* the same text again, or less of it */
    else {
        size_t n = how;
        prompt = take_text(in, &s->a, n);
        s->n = 0;
        append(s, prompt, n);
    }
    test_free(prompt);
    prompt = test_copy(s->text, 4 * s->n);
    MUST(lookup_source_begin(s->first, prompt, s->n) == LOOKUP_OK);
    for (size_t i = 0; i < s->a.n_members; ++i) MUST(lookup_source_begin(s->own[i], prompt, s->n) == LOOKUP_OK);
    test_free(prompt);
    s->drafted = false;
}

static void append_new(session *s, input *in, uint32_t n) {
    int32_t *tokens = take_text(in, &s->a, n);
    append(s, tokens, n);
    test_free(tokens);
}

/* Says once more what stands somewhere in the text. */
static void append_again(session *s, input *in, uint32_t n) {
    size_t from = s->n * take(in) / 256;
    for (size_t i = 0; i < n && s->n > 0; ++i) append(s, s->text + from + i, 1);
}

/* What the sources on their own draft, asked in turn; each is checked. */
static void draft_alone(session *s, const int32_t *text, size_t n, size_t room, drafted *d) {
    for (size_t i = 0; i < s->a.n_members && d->n == 0; ++i) {
        s->last = i;
        MUST(lookup_source_draft(s->own[i], text, n, d->tokens, d->tiers, room, &d->n) == LOOKUP_OK);
        check_draft(&s->a, i, text, n, room, d);
    }
}

static void draft(session *s, size_t room, drafted *d) {
    int32_t *text = test_copy(s->text, 4 * s->n), *other = test_copy(s->text, 4 * s->n), *out = test_memory(4 * room);
    uint8_t *tiers = test_memory(room);
    size_t n = 0;
    memset(d, 0, sizeof *d);
    draft_alone(s, other, s->n, room, d);
    MUST(lookup_source_draft(s->first, text, s->n, out, tiers, room, &n) == LOOKUP_OK);
    MUST(n == d->n && memcmp(out, d->tokens, 4 * n) == 0 && memcmp(tiers, d->tiers, n) == 0);
    if (s->a.n_members > 1) {
        int32_t last = -2;
        MUST(lookup_chain_last(s->first, &last) == LOOKUP_OK && last == (n > 0 ? (int32_t)s->last : -1));
    }
    s->drafted = n > 0;
    test_free(text);
    test_free(other);
    test_free(out);
    test_free(tiers);
}

static void accept(session *s, size_t n) {
    MUST(lookup_source_accept(s->first, n) == LOOKUP_OK);
    if (s->drafted || s->a.n_members == 1) MUST(lookup_source_accept(s->own[s->last], n) == LOOKUP_OK);
}

/* Drafts; some of it and one more token come true. */
static void step(session *s, input *in, size_t room) {
    drafted d;
    draft(s, room, &d);
    uint32_t b = take(in);
    size_t n = (b >> 4) * d.n / 15;
    if (s->drafted) accept(s, n);
    int32_t next = s->a.base + (int32_t)(b & 15) % s->a.vocab;
    append(s, d.tokens, n);
    append(s, &next, 1);
}

/* Two places of the text agree as far as they agree. */
static void compare_places(const session *s, uint32_t at) {
    size_t from = s->n * at / 256, n = s->n - from, same = 0;
    while (same < n && s->text[same] == s->text[from + same]) ++same;
    MUST(lookup_common_prefix(s->text, s->text + from, n) == same);
}

static void truncate_to(session *s, size_t n) {
    int32_t *text = test_copy(s->text, 4 * s->n);
    drafted d;
    draft(s, 3, &d); /* so that all of the text was seen */
    MUST(lookup_source_truncate(s->first, text, n) == LOOKUP_OK);
    for (size_t i = 0; i < s->a.n_members; ++i) MUST(lookup_source_truncate(s->own[i], text, n) == LOOKUP_OK);
    s->n = n;
    s->drafted = false;
    test_free(text);
}

/* Calls that are refused, and leave the sources as they were. */
static void refused(session *s, uint32_t how) {
    drafted d;
    draft(s, 2, &d);
    int32_t *text = test_memory(4 * (s->n + 1)), out[1];
    size_t n = 0;
    memcpy(text, s->text, 4 * s->n);
    text[s->n] = how & 1 ? -1 : INT32_MIN;
    MUST(lookup_source_draft(s->first, text, s->n + 1, out, NULL, 1, &n) == LOOKUP_E_TOKEN && n == 0);
    if (s->n > 0) MUST(lookup_source_draft(s->first, text, s->n - 1, out, NULL, 1, &n) == LOOKUP_E_ARGUMENT && n == 0);
    MUST(lookup_source_draft(s->first, text, s->n, out, NULL, LOOKUP_MAX_DRAFT + 1, &n) == LOOKUP_E_ARGUMENT);
    test_free(text);
    draft(s, how, &d);
}

static void operate(session *s, input *in) {
    uint32_t b = take(in), argument = b >> 3;
    drafted d;
    switch (b & 7) {
    case 0: begin(s, in, argument); break;
    case 1: append_new(s, in, 1 + argument); break;
    case 2: append_again(s, in, 1 + argument); break;
    case 3: accept(s, argument); break;
    case 4: compare_places(s, 8 * argument); truncate_to(s, s->n * take(in) / 255); break;
    case 5: argument == 31 ? refused(s, take(in) % 8) : draft(s, argument, &d); break;
    default: step(s, in, argument == 31 ? 64 : argument); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = input_of(data, size);
    session s;
    open_session(&s, &in);
    for (int steps = 0; left(&in) > 0 && steps < 200; ++steps) operate(&s, &in);
    close_session(&s);
    return 0;
}
