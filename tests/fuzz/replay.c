/* Replays of a text in chunks, from sources, chains and hostile traces: the counters must add up and
 * be those of a caller that does by hand what the replay does. */
#include "sources.h"

#include <string.h>

#define LONGEST 300
#define LARGE 6000 /* tokens, made up from a seed: enough for every table to grow */

/* A trace as a file might say it: in order only most of the time. */
typedef struct {
    uint64_t positions[16], ends[16];
    int32_t *tokens;
    size_t n, n_tokens;
    bool used;
} trace;

static void take_trace(input *in, trace *t) {
    uint32_t b = take(in);
    uint64_t position = 0, end = 0;
    memset(t, 0, sizeof *t);
    t->used = (b & 3) == 3;
    if (!t->used) return;
    t->n = b >> 4;
    for (size_t i = 0; i < t->n; ++i) {
        uint32_t d = take(in);
        t->positions[i] = position += 1 + (d & 15);
        t->ends[i] = end += d >> 4;
    }
    if (b & 4 && t->n > 0) t->positions[take(in) % t->n] = take_word(in);
    t->n_tokens = (size_t)end;
    t->tokens = take_tokens(in, t->n_tokens, 4);
    if (b & 8 && t->n_tokens > 0) t->tokens[take(in) % t->n_tokens] = (int32_t)take_word(in);
}

/* NULL if the trace was refused, as it must be. */
static lookup_source *trace_source(const trace *t) {
    lookup_trace view = {t->positions, t->ends, t->tokens, t->n};
    lookup_source *source = NULL;
    bool rising = true, legal = true;
    for (size_t i = 1; i < t->n; ++i) rising &= t->positions[i] > t->positions[i - 1];
    for (size_t i = 0; i < t->n_tokens; ++i) legal &= t->tokens[i] >= 0;
    lookup_status status = lookup_source_trace(&view, &source);
    MUST(status == (!rising ? LOOKUP_E_ARGUMENT : !legal ? LOOKUP_E_TOKEN : LOOKUP_OK));
    return source;
}

typedef struct {
    lookup_source *members[MEMBERS + 1], *source;
    size_t n;
} line_up;

static bool make_line_up(const arrangement *a, const trace *t, line_up *l) {
    memset(l, 0, sizeof *l);
    if (t->used) l->members[l->n++] = trace_source(t);
    if (t->used && l->members[0] == NULL) return false;
    for (size_t i = 0; i < a->n_members; ++i) l->members[l->n++] = make_source(a, i);
    l->source = l->members[0];
    if (l->n > 1) MUST(lookup_source_chain(l->members, l->n, &l->source) == LOOKUP_OK);
    return true;
}

static void free_line_up(line_up *l) {
    if (l->n > 1) lookup_source_free(l->source);
    for (size_t i = 0; i < l->n; ++i) lookup_source_free(l->members[i]);
}

/* A trace comes first in its chain: what it holds for a position is drafted, and nothing else of it. */
static void check_trace(const trace *t, const lookup_source *chain, uint64_t position, const drafted *d, size_t room) {
    int32_t last = -1;
    size_t at = 0;
    while (at < t->n && t->positions[at] != position) ++at;
    size_t from = at > 0 && at < t->n ? (size_t)t->ends[at - 1] : 0, length = at < t->n ? (size_t)t->ends[at] - from : 0;
    MUST(lookup_chain_last(chain, &last) == LOOKUP_OK && (last == 0) == (length > 0));
    if (length > room) length = room;
    if (length > 0) MUST(d->n == length && memcmp(d->tokens, t->tokens + from, 4 * length) == 0);
}

/* The replay by hand: what is drafted, and how much of it stands in the text. The text starts at
 * `start` of the stream that a trace speaks of. */
static void by_hand(lookup_source *source, const arrangement *a, const trace *t, size_t start, const int32_t *text, size_t n, size_t n_prompt, size_t draft_max, lookup_replay_stats *st) {
    bool alone = a->n_members == 1 && !t->used && a->members[0].kind != CACHE; /* its model is too slow */
    drafted d;
    memset(&d, 0, sizeof d);
    MUST(lookup_source_begin(source, text, n_prompt) == LOOKUP_OK);
    for (size_t at = n_prompt + 1; at < n;) {
        size_t agreed = 0;
        int32_t *copy = n < LARGE / 2 ? test_copy(text, 4 * at) : NULL; /* so that a look ahead is seen */
        MUST(lookup_source_draft(source, copy ? copy : text, at, d.tokens, d.tiers, draft_max, &d.n) == LOOKUP_OK && d.n <= draft_max);
        test_free(copy);
        if (t->used) check_trace(t, source, start + at, &d, draft_max);
        if (alone && at % 16 == 0) check_draft(a, 0, text, at, draft_max, &d);
        while (agreed < d.n && at + agreed < n && d.tokens[agreed] == text[at + agreed]) ++agreed;
        if (d.n > 0) MUST(lookup_source_accept(source, agreed) == LOOKUP_OK);
        st->n_decode++;
        st->n_drafted += d.n;
        st->n_accept += agreed;
        st->drafted_steps += d.n > 0;
        st->acc_drafts += agreed > 0;
        at += agreed + 1;
    }
}

static void check_sums(const lookup_replay_stats *st, uint64_t n_chunks) {
    uint64_t steps = 0, tokens = 0, accepted = 0, by_place = 0, missing;
    for (size_t i = 0; i <= LOOKUP_MAX_DRAFT; ++i) {
        steps += st->drafted_length[i];
        tokens += i * st->drafted_length[i];
        accepted += i * st->accepted_length[i];
        if (i == LOOKUP_MAX_DRAFT) break;
        by_place += st->accepted_at[i];
        MUST(i == 0 || st->accepted_at[i] <= st->accepted_at[i - 1]);
    }
    MUST(steps == st->n_decode && tokens == st->n_drafted && accepted == st->n_accept && by_place == st->n_accept);
    MUST(st->tier_drafted[0] + st->tier_drafted[1] + st->tier_drafted[2] == st->n_drafted);
    MUST(st->tier_accepted[0] + st->tier_accepted[1] + st->tier_accepted[2] == st->n_accept);
    MUST(st->n_accept <= st->n_drafted && st->gen_tokens == st->n_drafted && st->acc_tokens == st->n_accept);
    MUST(st->calls_draft == st->n_decode && st->calls_accept == st->drafted_steps && st->gen_drafts == st->drafted_steps);
    MUST(st->calls_begin == n_chunks && st->n_decode + st->n_accept >= st->n_produced);
    missing = st->n_decode + st->n_accept - st->n_produced; /* a chunk may end with a draft come true */
    MUST(missing <= n_chunks);
}

static void compare(const lookup_replay_stats *a, const lookup_replay_stats *b) {
    MUST(a->n_decode == b->n_decode && a->n_drafted == b->n_drafted && a->n_accept == b->n_accept);
    MUST(a->drafted_steps == b->drafted_steps && a->acc_drafts == b->acc_drafts);
}

static int32_t *large_text(uint64_t seed, const arrangement *a) {
    int32_t *text = make_text(LARGE, a->vocab, seed);
    for (size_t i = 0; i < LARGE; ++i) text[i] += a->base;
    return text;
}

static void replay(input *in, const arrangement *a, const trace *t, lookup_replay_stats *st, lookup_replay_stats *hand) {
    uint32_t how = take(in);
    size_t draft_max = 1 + take(in) % 40, chunk = 2 + take(in) % 100, n_prompt = take(in) % 40, n = left(in), n_chunks = 0;
    bool large = how >= 250;
    if (n > LONGEST) n = LONGEST;
    if (large) n = LARGE;
    if (large) chunk *= 60;
    int32_t *text = large ? large_text(take_word(in), a) : take_text(in, a, n);
    line_up one, other;
    if (make_line_up(a, t, &one)) {
        MUST(make_line_up(a, t, &other));
        for (size_t from = 0; from < n; from += chunk, ++n_chunks) {
            size_t size = n - from < chunk ? n - from : chunk, prompt = n_prompt < size ? n_prompt : size - 1;
            int32_t *part = test_copy(text + from, 4 * size);
            if (t->used) MUST(lookup_trace_seek(one.members[0], from) == LOOKUP_OK);
            if (t->used) MUST(lookup_trace_seek(other.members[0], from) == LOOKUP_OK);
            MUST(lookup_replay_chunk(one.source, part, size, size, draft_max, st) == LOOKUP_E_ARGUMENT);
            MUST(lookup_replay_chunk(one.source, part, size, prompt, draft_max, st) == LOOKUP_OK);
            by_hand(other.source, a, t, from, part, size, prompt, draft_max, hand);
            test_free(part);
        }
        check_sums(st, n_chunks);
        compare(st, hand);
        free_line_up(&other);
    }
    free_line_up(&one);
    test_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = input_of(data, size);
    arrangement a;
    trace t;
    static lookup_replay_stats st, hand;
    memset(&st, 0, sizeof st);
    memset(&hand, 0, sizeof hand);
    arrange(&in, &a);
    take_trace(&in, &t);
    replay(&in, &a, &t, &st, &hand);
    test_free(t.tokens);
    arrangement_free(&a);
    return 0;
}
