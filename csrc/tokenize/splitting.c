/* Splitting: what each kind of step matches at a place, and the loop that applies the steps. */
#include "rules.h"

static void apply(run *r, const step *st, const uint8_t *p, const uint8_t *end);

/* What a step found, or what lay between two finds, goes to the next step. */
INLINE void hand_on(run *r, const step *next, const uint8_t *p, const uint8_t *end) {
    if (p >= end) return;
    if (next->kind == DONE) lookup_tokenize_enqueue(r, p, (size_t)(end - p));
    else apply(r, next, p, end);
}

/* The end of a run of characters that have, or have not, some of these classes. */
INLINE const uint8_t *run_of(const lookup_tokenizer *t, const uint8_t *p, const uint8_t *end,
                             uint32_t want) {
    for (size_t n; class_at(t, p, end, &n) & want;) p += n;
    return p;
}
INLINE const uint8_t *run_without(const lookup_tokenizer *t, const uint8_t *p, const uint8_t *end,
                                  uint32_t stop) {
    uint32_t k;
    for (size_t n; (k = class_at(t, p, end, &n)) != 0 && !(k & stop);) p += n;
    return p;
}
INLINE const uint8_t *up_to(const lookup_tokenizer *t, const uint8_t *p, const uint8_t *end,
                            uint32_t want, uint32_t max) {
    for (size_t n; max && class_at(t, p, end, &n) & want; max--) p += n;
    return p;
}

/* A run of letters, most of them ASCII. */
INLINE const uint8_t *letters(const lookup_tokenizer *t, const uint8_t *p, const uint8_t *end,
                              uint32_t want) {
    for (;;) {
#if defined(__SSE2__) && defined(__GNUC__)
        __m128i v = _mm_or_si128(_mm_loadu_si128((const __m128i *)(const void *)p), _mm_set1_epi8(0x20));
        v = _mm_add_epi8(v, _mm_set1_epi8((char)(0x80 - 'a')));
        v = _mm_cmplt_epi8(v, _mm_set1_epi8((char)(-128 + 26)));
        unsigned others = ~(unsigned)_mm_movemask_epi8(v);
        p += __builtin_ctz(others);
        if (p >= end) return end;
        if (!(others & 0xFFFF)) continue;
#else
        while (p < end && (uint8_t)((*p | 0x20) - 'a') < 26) p++;
        if (p >= end) return end;
#endif
        if (*p < 0x80) return p;
        size_t n;
        do {
            if (!(class_at(t, p, end, &n) & want)) return p;
            p += n;
        } while (p < end && *p >= 0x80);
        if (p >= end) return end;
    }
}

/* 's 't 'm 'd 're 've 'll, in any case if asked; 0 for none. */
INLINE size_t shortened(const uint8_t *p, const uint8_t *end, bool any_case) {
    uint8_t fold = any_case ? 0x20 : 0;
    if (p >= end || *p != '\'' || end - p < 2 || p[1] >= 0x80) return 0;
    uint8_t a = p[1] | (p[1] >= 'A' ? fold : 0);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (end - p < 3 || p[2] >= 0x80) return 0;
    uint8_t b = p[2] | (p[2] >= 'A' ? fold : 0);
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line end, or all but the last character. */
INLINE const uint8_t *spaces(const lookup_tokenizer *t, const uint8_t *p, const uint8_t *end,
                             bool lines) {
    const uint8_t *q = p, *last = p, *line = NULL;
    uint32_t k;
    for (size_t n; (k = class_at(t, q, end, &n)) & S; q += n) {
        last = q;
        if (k & NL) line = q + n;
    }
    if (line && lines) return line;
    return q == end || last == p ? q : last;
}

INLINE const uint8_t *match_gpt2(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                 const uint8_t *end) {
    (void)st;
    size_t n, m = shortened(p, end, false);
    if (m) return p + m;
    const uint8_t *q = p + (*p == ' ');
    uint32_t k = class_at(t, q, end, &n);
    if (k & L) return letters(t, q + n, end, L);
    if (k & N) return run_of(t, q + n, end, N);
    if (k && !(k & S)) return run_without(t, q + n, end, S | L | N);
    return spaces(t, p, end, false);
}

INLINE const uint8_t *match_words(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                  const uint8_t *end) {
    const uint32_t word = st->options & MARKS ? L | M : L;
    size_t n, m = st->options & SHORTENED ? shortened(p, end, true) : 0;
    if (m) return p + m;
    uint32_t k = class_at(t, p, end, &n);
    if (k & word) return letters(t, p + n, end, word);
    uint32_t next = class_at(t, p + n, end, &m);
    if (!(k & (NL | N)) && next & word) return letters(t, p + n + m, end, word);
    if (k & N) return up_to(t, p, end, N, st->max);
    const uint8_t *q = p;
    if (*p == ' ') q = p + 1, k = next;
    if (k && !(k & (S | word | N))) {
        q = run_without(t, q, end, S | word | N);
        return st->options & TRAILING ? run_of(t, q, end, NL) : q;
    }
    return spaces(t, p, end, true);
}

/* Capitals, then small letters; letters without ASCII case are both. NULL: no small one. */
INLINE const uint8_t *capitals_and_small(const lookup_tokenizer *t, const uint8_t *p,
                                         const uint8_t *end, uint32_t word, bool one_case) {
    const uint8_t *both = NULL;
    size_t n;
    for (; class_at(t, p, end, &n) & word; p += n) {
        if (!one_case && *p >= 'a' && *p <= 'z') { /* small letters up to the next capital */
            while (class_at(t, p, end, &n) & word && (*p < 'A' || *p > 'Z')) p += n;
            return p;
        }
        if (one_case || *p < 'A' || *p > 'Z') both = p + n;
    }
    return both;
}

INLINE const uint8_t *capitals(const lookup_tokenizer *t, const uint8_t *p, const uint8_t *end,
                               uint32_t word) {
    const uint8_t *from = p;
    for (size_t n; class_at(t, p, end, &n) & word && (*p < 'a' || *p > 'z');) p += n;
    return p > from ? p : NULL; /* no small letter follows: the first form had matched */
}

INLINE const uint8_t *match_cased(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                  const uint8_t *end) {
    const uint32_t word = st->options & MARKS ? L | M : L;
    const bool one_case = st->options & ONE_CASE;
    size_t n, m;
    uint32_t k = class_at(t, p, end, &n);
    bool may_lead = !(k & (NL | L | N));
    const uint8_t *q = may_lead ? capitals_and_small(t, p + n, end, word, one_case) : NULL;
    if (!q) q = capitals_and_small(t, p, end, word, one_case);
    if (!q && may_lead) q = capitals(t, p + n, end, word);
    if (!q) q = capitals(t, p, end, word);
    if (q) return q + (st->options & SHORTENED ? shortened(q, end, true) : 0);
    if (k & N) return up_to(t, p, end, N, st->max);
    q = p;
    if (*p == ' ') q = p + 1, k = class_at(t, q, end, &m);
    if (k && !(k & (S | L | N))) {
        q = run_without(t, q, end, S | L | N);
        while (q < end && (*q == '\r' || *q == '\n' || *q == '/')) q++;
        return q;
    }
    return spaces(t, p, end, true);
}

INLINE bool ascii_letter(uint8_t c) { return (uint8_t)((c | 0x20) - 'a') < 26; }

INLINE const uint8_t *match_marked(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                   const uint8_t *end) {
    size_t n, m;
    uint32_t k = class_at(t, p, end, &n);
    if (n == 1 && k & (P | SYM) && p + 1 < end && ascii_letter(p[1])) {
        for (p++; p < end && ascii_letter(*p);) p++;
        return p;
    }
    const uint8_t *q = k & (NL | L | P | SYM) ? p : p + n;
    if (class_at(t, q, end, &m) & (L | M)) return letters(t, q + m, end, L | M);
    if (k & (L | M)) return letters(t, p + n, end, L | M);
    q = p;
    if (*p == ' ') q = p + 1, k = class_at(t, q, end, &m);
    if (k & (P | SYM)) {
        q = run_of(t, q, end, P | SYM);
        return st->options & TRAILING ? run_of(t, q, end, NL) : q;
    }
    k = class_at(t, p, end, &n);
    if (!(st->options & TRAILING) && k & NL) return p + 1;
    return k & S ? spaces(t, p, end, st->options & TRAILING) : NULL;
}

INLINE const uint8_t *match_bloom(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                  const uint8_t *end) {
    (void)st;
    const uint8_t *q = p + (*p == ' '), *to = run_without(t, q, end, S | SET1);
    return to > q ? to : NULL;
}

INLINE const uint8_t *match_runs(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                 const uint8_t *end) {
    const uint8_t *to = up_to(t, p, end, st->set, st->max);
    return to > p ? to : NULL;
}

INLINE const uint8_t *match_spaced(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                   const uint8_t *end) {
    size_t n, m;
    uint32_t k = class_at(t, p, end, &n);
    if (k & st->set) return run_of(t, p + n, end, st->set);
    if (k & S && class_at(t, p + n, end, &m) & st->set) return run_of(t, p + n + m, end, st->set);
    return NULL;
}

INLINE const uint8_t *match_triple(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                   const uint8_t *end) {
    (void)t, (void)st;
    if (end - p < 3) return NULL;
    for (int i = 0; i < 3; i++)
        if ((uint8_t)(p[i] - '0') > 9) return NULL;
    return p + 3;
}

INLINE const uint8_t *match_lines(const lookup_tokenizer *t, const step *st, const uint8_t *p,
                                  const uint8_t *end) {
    (void)t, (void)st;
    const bool line_end = *p == '\n';
    while (p < end && (*p == '\n') == line_end) p++;
    return p;
}

typedef const uint8_t *(*matcher)(const lookup_tokenizer *, const step *, const uint8_t *,
                                  const uint8_t *);

INLINE void each_match(run *r, const step *st, const uint8_t *p, const uint8_t *end, matcher match) {
    const uint8_t *gap = p;
    while (p < end) {
        const uint8_t *to = match(r->t, st, p, end);
        if (!to) {
            size_t n;
            decode(p, &n);
            p += n;
            continue;
        }
        hand_on(r, st + 1, gap, p);
        hand_on(r, st + 1, p, to);
        gap = p = to;
    }
    hand_on(r, st + 1, gap, end);
}

/* The white space at the end stands alone. */
static void split_tail(run *r, const step *st, const uint8_t *p, const uint8_t *end) {
    const uint8_t *tail = end;
    size_t n;
    for (const uint8_t *q = end; q > p; tail = q) {
        do q--;
        while (q > p && (*q & 0xC0) == 0x80);
        if (!(class_at(r->t, q, end, &n) & S)) break;
    }
    hand_on(r, st + 1, p, tail);
    hand_on(r, st + 1, tail, end);
}

/* Numbers in threes from the right. What lies before a number stays with its first group. */
static void split_groups(run *r, const step *st, const uint8_t *p, const uint8_t *end) {
    const lookup_tokenizer *t = r->t;
    const uint8_t *from = p;
    size_t n;
    while (p < end) {
        if (!(class_at(t, p, end, &n) & N)) {
            p += n;
            continue;
        }
        size_t digits = 0;
        for (const uint8_t *q = p; class_at(t, q, end, &n) & N; q += n) digits++;
        for (size_t group = digits % 3 ? digits % 3 : 3; digits; digits -= group, group = 3) {
            p = up_to(t, p, end, N, (uint32_t)group);
            hand_on(r, st + 1, from, p);
            from = p;
        }
    }
    hand_on(r, st + 1, from, end);
}

/* Vocabularies without a pattern are cut where no token spans two characters. */
static void split_joined(run *r, const step *st, const uint8_t *p, const uint8_t *end) {
    const uint8_t *from = p;
    (void)st;
    for (const uint8_t *at = p + 1; at < end; at++) {
        if ((*at & 0xC0) == 0x80 || (*at < 0x80 && at[-1] < 0x80)) continue;
        if (lookup_tokenize_may_join(r->t, from, at, end)) continue;
        lookup_tokenize_enqueue(r, from, (size_t)(at - from));
        from = at;
    }
    lookup_tokenize_enqueue(r, from, (size_t)(end - from));
}

static void apply(run *r, const step *st, const uint8_t *p, const uint8_t *end) {
    switch ((step_kind)st->kind) {
    case DONE: break;
    case RUNS: each_match(r, st, p, end, match_runs); break;
    case SPACED: each_match(r, st, p, end, match_spaced); break;
    case TAIL: split_tail(r, st, p, end); break;
    case TRIPLE: each_match(r, st, p, end, match_triple); break;
    case GPT2: each_match(r, st, p, end, match_gpt2); break;
    case WORDS: each_match(r, st, p, end, match_words); break;
    case CASED: each_match(r, st, p, end, match_cased); break;
    case MARKED: each_match(r, st, p, end, match_marked); break;
    case BLOOM: each_match(r, st, p, end, match_bloom); break;
    case LINES: each_match(r, st, p, end, match_lines); break;
    case GROUPS: split_groups(r, st, p, end); break;
    case JOINED: split_joined(r, st, p, end); break;
    }
}

void lookup_tokenize_split(run *r, const uint8_t *p, const uint8_t *end) {
    if (p < end) apply(r, r->t->rules->steps, p, end);
}
