/* The ids of one piece: symbols, joined pair by pair, the best pair first and of equals the leftmost.
 * Few symbols are scanned anew after each join; many wait in a heap. */
#include "tokenize.h"

#define FEW 64

typedef struct {
    uint32_t at, size; /* in the piece; size 0: joined to the one before */
    int32_t id;
    uint32_t previous, next;
} symbol;

typedef struct {
    uint32_t rank, left, size;
    int32_t id;
} candidate;

#define NONE UINT32_MAX

static uint32_t pair_rank(const lookup_tokenizer *t, int32_t left, int32_t right, int32_t *id) {
    if (left < 0 || right < 0) return NO_RANK;
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    for (uint32_t i = (uint32_t)fmix64(key) & t->merge_mask; t->merges[i].key;
         i = (i + 1) & t->merge_mask)
        if (t->merges[i].key == key) return *id = t->merges[i].id, t->merges[i].rank;
    return NO_RANK;
}

/* The rank of two neighbours' join and its id; NO_RANK where there is none. */
INLINE uint32_t join_rank(const lookup_tokenizer *t, const uint8_t *p, const symbol *left,
                          const symbol *right, int32_t *id) {
    if (t->scheme != SENTENCEPIECE) return pair_rank(t, left->id, right->id, id);
    size_t n = (size_t)left->size + right->size;
    if (n > t->longest) return NO_RANK;
    *id = lookup_tokenize_token_of(t, p + left->at, n);
    return *id < 0 ? NO_RANK : t->ranks[*id];
}

static uint32_t count_symbols(const lookup_tokenizer *t, const uint8_t *p, size_t n) {
    if (t->scheme == BYTE_LEVEL) return (uint32_t)n;
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) count += (p[i] & 0xC0) != 0x80;
    return count;
}

static void make_symbols(const lookup_tokenizer *t, const uint8_t *p, size_t n, symbol *s) {
    uint32_t k = 0;
    for (size_t at = 0, size = 1; at < n; at += size, k++) {
        int32_t id = t->byte_ids[p[at]];
        if (t->scheme != BYTE_LEVEL) {
            decode(p + at, &size);
            id = lookup_tokenize_token_of(t, p + at, size);
        }
        s[k] = (symbol){(uint32_t)at, (uint32_t)size, id, k - 1, k + 1};
    }
    s[k - 1].next = NONE;
}

/* A symbol that is no token gives its bytes; those that the vocabulary lacks are left out. */
static size_t put_ids(const lookup_tokenizer *t, const uint8_t *p, const symbol *s, int32_t *out) {
    if (s->id >= 0) return out[0] = s->id, 1;
    if (t->scheme == BYTE_LEVEL) return 0;
    size_t k = 0;
    for (uint32_t i = 0; i < s->size; i++) {
        int32_t id = t->byte_ids[p[s->at + i]];
        if (id >= 0) out[k++] = id;
    }
    return k;
}

static size_t merge_few(const lookup_tokenizer *t, const uint8_t *p, symbol *s, uint32_t n,
                        int32_t *out) {
    uint32_t rank[FEW];
    int32_t id[FEW] = {0};
    for (uint32_t i = 0; i + 1 < n; i++) rank[i] = join_rank(t, p, &s[i], &s[i + 1], &id[i]);
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        s[best].id = id[best];
        s[best].size += s[best + 1].size;
        n--;
        size_t rest = n - best - 1;
        memmove(&s[best + 1], &s[best + 2], rest * sizeof *s);
        if (rest) {
            memmove(&rank[best], &rank[best + 1], rest * sizeof *rank);
            memmove(&id[best], &id[best + 1], rest * sizeof *id);
            rank[best] = join_rank(t, p, &s[best], &s[best + 1], &id[best]);
        }
        if (best) rank[best - 1] = join_rank(t, p, &s[best - 1], &s[best], &id[best - 1]);
    }
    size_t k = 0;
    for (uint32_t i = 0; i < n; i++) k += put_ids(t, p, &s[i], out + k);
    return k;
}

static bool before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void push(candidate *heap, size_t *count, candidate c) {
    size_t i = (*count)++;
    for (; i && before(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static candidate pop(candidate *heap, size_t *count) {
    candidate top = heap[0], last = heap[--*count];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < *count; i = c) {
        if (c + 1 < *count && before(&heap[c + 1], &heap[c])) c++;
        if (!before(&heap[c], &last)) break;
        heap[i] = heap[c];
    }
    heap[i] = last;
    return top;
}

static void try_pair(const lookup_tokenizer *t, const uint8_t *p, const symbol *s, uint32_t left,
                     candidate *heap, size_t *count) {
    if (left == NONE || s[left].next == NONE) return;
    const symbol *right = &s[s[left].next];
    candidate c = {0, left, s[left].size + right->size, 0};
    c.rank = join_rank(t, p, &s[left], right, &c.id);
    if (c.rank != NO_RANK) push(heap, count, c);
}

static size_t merge_many(const lookup_tokenizer *t, const uint8_t *p, symbol *s, uint32_t n,
                         candidate *heap, int32_t *out) {
    size_t count = 0;
    for (uint32_t i = 0; i + 1 < n; i++) try_pair(t, p, s, i, heap, &count);
    while (count) {
        candidate c = pop(heap, &count);
        symbol *left = &s[c.left];
        if (left->size == 0 || left->next == NONE || left->size + s[left->next].size != c.size)
            continue; /* one of the two has been joined since */
        symbol *right = &s[left->next];
        left->size = c.size;
        left->id = c.id;
        left->next = right->next;
        right->size = 0;
        if (left->next != NONE) s[left->next].previous = c.left;
        try_pair(t, p, s, left->previous, heap, &count);
        try_pair(t, p, s, c.left, heap, &count);
    }
    size_t k = 0;
    for (uint32_t i = 0; i != NONE; i = s[i].next) k += put_ids(t, p, &s[i], out + k);
    return k;
}

/* Room for n symbols and a heap that takes two candidates more for each join. */
static symbol *scratch_for(run *r, size_t n) {
    size_t size = n * (sizeof(symbol) + 3 * sizeof(candidate));
    if (size > r->scratch_size) {
        lookup_free(r->scratch);
        r->scratch = lookup_alloc(size, 1);
        r->scratch_size = r->scratch ? size : 0;
        if (!r->scratch) r->status = LOOKUP_E_MEMORY;
    }
    return r->scratch;
}

size_t lookup_tokenize_merge_piece(run *r, const uint8_t *p, size_t n, bool whole, int32_t *out) {
    const lookup_tokenizer *t = r->t;
    if (n == 0) return 0;
    if (whole && t->ignore_merges && n <= t->longest && (out[0] = lookup_tokenize_token_of(t, p, n)) >= 0) return 1;
    uint32_t count = count_symbols(t, p, n);
    if (count <= FEW) {
        symbol few[FEW];
        make_symbols(t, p, n, few);
        return merge_few(t, p, few, count, out);
    }
    symbol *many = scratch_for(r, count);
    if (!many) return 0;
    make_symbols(t, p, n, many);
    return merge_many(t, p, many, count, (candidate *)(void *)(many + count), out);
}
