/* Literals as llama.cpp finds them: it goes through them from the longest to the shortest and takes
 * each wherever no earlier one lies. Nearly always that is the longest at the leftmost place; only
 * where a longer one begins inside it are all that overlap put in order first. */
#include "literals.h"

#include <stdlib.h>

typedef struct {
    const uint8_t *text;
    size_t size;
    uint32_t order;
    int32_t id;
    uint8_t strip;
} literal;

struct lookup_literals {
    uint8_t *texts;
    literal *all; /* by first byte, then the longest first */
    uint32_t first[257];
    uint32_t n;
    uint8_t starts[8192]; /* a bit for every first two bytes that one has */
};

static int by_size(const void *a, const void *b) {
    const literal *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int by_first_byte(const void *a, const void *b) {
    const literal *x = a, *y = b;
    if (x->text[0] != y->text[0]) return x->text[0] < y->text[0] ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void set_start(lookup_literals *l, unsigned a, unsigned b) {
    l->starts[(a << 8 | b) >> 3] |= (uint8_t)(1u << (b & 7));
}

static void index_literals(lookup_literals *l) {
    qsort(l->all, l->n, sizeof *l->all, by_size);
    for (uint32_t i = 0; i < l->n; i++) l->all[i].order = i;
    qsort(l->all, l->n, sizeof *l->all, by_first_byte);
    uint32_t k = 0;
    for (unsigned b = 0; b <= 256; b++) {
        while (k < l->n && l->all[k].text[0] < b) k++;
        l->first[b] = k;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        const literal *x = &l->all[i];
        if (x->size > 1) set_start(l, x->text[0], x->text[1]);
        for (unsigned b = 0; x->size == 1 && b < 256; b++) set_start(l, x->text[0], b);
    }
}

lookup_status lookup_literals_new(const uint8_t *texts, const uint64_t *ends, const int32_t *ids,
                                  const uint8_t *strip, uint32_t n, lookup_literals **out) {
    lookup_literals *l = lookup_alloc(1, sizeof *l);
    CHECK(l, LOOKUP_E_MEMORY);
    size_t total = n ? (size_t)ends[n - 1] : 0;
    l->texts = lookup_alloc(total, 1);
    l->all = lookup_alloc(n, sizeof *l->all);
    if (!l->texts || !l->all) {
        lookup_literals_free(l);
        return LOOKUP_E_MEMORY;
    }
    memcpy(l->texts, texts, total);
    for (uint32_t i = 0; i < n; i++) {
        size_t from = i ? (size_t)ends[i - 1] : 0, size = (size_t)ends[i] - from;
        if (size) l->all[l->n++] = (literal){l->texts + from, size, i, ids[i], strip[i]};
    }
    index_literals(l);
    *out = l;
    return LOOKUP_OK;
}

void lookup_literals_free(lookup_literals *l) {
    if (!l) return;
    lookup_free(l->texts);
    lookup_free(l->all);
    lookup_free(l);
}

/* The longest literal at p that is longer than `more`, from the `from`th on; NULL: none. */
static const literal *literal_at(const lookup_literals *l, const uint8_t *p, size_t left, size_t more,
                                 uint32_t from) {
    unsigned b = left > 1 ? p[1] : 0;
    if (!(l->starts[(unsigned)(p[0] << 8 | b) >> 3] >> (b & 7) & 1)) return NULL;
    for (uint32_t i = from > l->first[p[0]] ? from : l->first[p[0]]; i < l->first[p[0] + 1]; i++) {
        const literal *x = &l->all[i];
        if (x->size <= more) return NULL;
        if (x->size <= left && memcmp(x->text, p, x->size) == 0) return x;
    }
    return NULL;
}

static lookup_status append(found_list *list, const literal *x, size_t at) {
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        found_literal *more = lookup_realloc(list->at, room, sizeof *more);
        CHECK(more, LOOKUP_E_MEMORY);
        list->at = more;
        list->room = room;
    }
    list->at[list->count++] = (found_literal){at, at + x->size, x->order, x->id, x->strip};
    return LOOKUP_OK;
}

static int by_order(const void *a, const void *b) {
    const found_literal *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static int by_place(const void *a, const void *b) {
    const found_literal *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Which of the occurrences from `start` on count: in order, where none before them lies. `taken` has
 * a byte for every byte of the text from `base` on. */
static void keep_first(found_list *list, size_t start, size_t base, uint8_t *taken) {
    size_t kept = start;
    qsort(list->at + start, list->count - start, sizeof *list->at, by_order);
    for (size_t i = start; i < list->count; i++) {
        found_literal f = list->at[i];
        if (memchr(taken + f.from - base, 1, f.to - f.from)) continue;
        memset(taken + f.from - base, 1, f.to - f.from);
        list->at[kept++] = f;
    }
    list->count = kept;
    qsort(list->at + start, kept - start, sizeof *list->at, by_place);
}

/* All that overlap from `at` on; `*end` is where they end. */
static lookup_status take_overlap(const lookup_literals *l, const uint8_t *p, size_t size, size_t at,
                                  size_t *end, found_list *list) {
    size_t start = list->count, to = at + 1;
    for (size_t q = at; q < to; q++) {
        const literal *x = literal_at(l, p + q, size - q, 0, 0);
        for (; x; x = literal_at(l, p + q, size - q, 0, (uint32_t)(x - l->all) + 1)) {
            TRY(append(list, x, q));
            if (q + x->size > to) to = q + x->size;
        }
    }
    uint8_t *taken = lookup_alloc(to - at, 1);
    CHECK(taken, LOOKUP_E_MEMORY);
    keep_first(list, start, at, taken);
    lookup_free(taken);
    *end = to;
    return LOOKUP_OK;
}

lookup_status lookup_tokenize_find_literals(const lookup_literals *l, const uint8_t *p, size_t size, found_list *list) {
    list->count = 0;
    for (size_t at = 0; at < size;) {
        const literal *x = literal_at(l, p + at, size - at, 0, 0);
        if (!x) {
            at++;
            continue;
        }
        bool longer = false;
        for (size_t q = at + 1; q < at + x->size && !longer; q++)
            longer = literal_at(l, p + q, size - q, x->size, 0) != NULL;
        size_t end = at + x->size;
        if (longer) TRY(take_overlap(l, p, size, at, &end, list));
        else TRY(append(list, x, at));
        at = end;
    }
    return LOOKUP_OK;
}
