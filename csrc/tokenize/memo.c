/* A piece's ids depend on its bytes alone, so they are remembered by these: pieces of up to 15 bytes,
 * which most are, and of up to 31. Two entries a place; the newest stands first. Look-ups wait in a
 * queue while their entries come from memory. */
#include "tokenize.h"

#define SHORT_MAX 15
#define LONG_MAX 31
#define INNER 0x80 /* in a key: a part of a piece, to which whole tokens do not apply */

struct short_entry {
    uint64_t low, high; /* the bytes, zeros behind them, their number in the last */
    int32_t ids[3];
    uint32_t n;
};
typedef struct {
    uint8_t key[LONG_MAX + 1];
    int32_t ids[7];
    uint32_t n;
} long_entry;

struct lookup_memo {
    short_entry *shorts;
    long_entry *longs;
    uint64_t short_mask, long_mask;
};

lookup_status lookup_memo_new(uint32_t bits, lookup_memo **out) {
    CHECK(bits >= 2 && bits <= 24, LOOKUP_E_ARGUMENT);
    lookup_memo *m = lookup_alloc(1, sizeof *m);
    CHECK(m, LOOKUP_E_MEMORY);
    m->short_mask = ((uint64_t)1 << bits) - 1;
    m->long_mask = ((uint64_t)1 << (bits - 2)) - 1;
    m->shorts = lookup_alloc((size_t)(m->short_mask + 1) * 2, sizeof *m->shorts);
    m->longs = lookup_alloc((size_t)(m->long_mask + 1) * 2, sizeof *m->longs);
    if (m->shorts && m->longs) return *out = m, LOOKUP_OK;
    lookup_memo_free(m);
    return LOOKUP_E_MEMORY;
}

void lookup_memo_free(lookup_memo *m) {
    if (!m) return;
    lookup_free(m->shorts);
    lookup_free(m->longs);
    lookup_free(m);
}

INLINE queued look_up(const run *r, const uint8_t *p, size_t n, uint64_t inner) {
    queued q = {load64(p), load64(p + 8), NULL, p, n};
    if (n < 8) {
        q.low &= ((uint64_t)1 << (8 * n)) - 1;
        q.high = 0;
    } else {
        q.high &= ((uint64_t)1 << (8 * (n - 8))) - 1;
    }
    q.high |= (n | inner) << 56;
    uint64_t h = (q.low ^ (q.high * 0x9FB21C651E98DF25ull)) * 0x9E3779B97F4A7C15ull;
    q.entry = &r->memo->shorts[((h >> 32) & r->memo->short_mask) * 2];
    return q;
}

static void short_miss(run *r, const queued *q) {
    int32_t *out = r->out;
    size_t n = lookup_tokenize_merge_piece(r, q->at, q->size, !(q->high >> 63), out);
    if (n <= 3) {
        q->entry[1] = q->entry[0];
        q->entry[0] = (short_entry){q->low, q->high, {0}, (uint32_t)n};
        memcpy(q->entry[0].ids, out, n * sizeof *out);
    }
    r->out += n;
}

INLINE void take_short(run *r, const queued *q) {
    const short_entry *e = q->entry;
    if (LIKELY(e->low == q->low && e->high == q->high)) {
    } else if (e[1].low == q->low && e[1].high == q->high) {
        e++;
    } else {
        short_miss(r, q);
        return;
    }
    memcpy(r->out, e->ids, sizeof e->ids);
    r->out += e->n;
}

static void take_long(run *r, const uint8_t *p, size_t n, bool inner) {
    if (n > LONG_MAX) {
        r->out += lookup_tokenize_merge_piece(r, p, n, !inner, r->out);
        return;
    }
    uint8_t key[LONG_MAX + 1] = {0};
    memcpy(key, p, n);
    key[LONG_MAX] = (uint8_t)(n | (inner ? INNER : 0));
    long_entry *e = &r->memo->longs[(hash_bytes(key, sizeof key) & r->memo->long_mask) * 2];
    for (int i = 0; i < 2; i++)
        if (memcmp(e[i].key, key, sizeof key) == 0) {
            memcpy(r->out, e[i].ids, sizeof e[i].ids);
            r->out += e[i].n;
            return;
        }
    size_t count = lookup_tokenize_merge_piece(r, p, n, !inner, r->out);
    if (count <= 7) {
        e[1] = e[0];
        memcpy(e->key, key, sizeof key);
        memcpy(e->ids, r->out, count * sizeof *r->out);
        e->n = (uint32_t)count;
    }
    r->out += count;
}

static void take(run *r, const uint8_t *p, size_t n, bool inner) {
    if (n > SHORT_MAX) {
        take_long(r, p, n, inner);
        return;
    }
    queued q = look_up(r, p, n, inner ? INNER : 0);
    take_short(r, &q);
}

/* A long piece is cut where no token spans two characters, for nothing joins there. */
void lookup_tokenize_piece_long(run *r, const uint8_t *p, size_t n) {
    const lookup_tokenizer *t = r->t;
    const uint8_t *end = p + n, *from = p;
    if (t->ignore_merges && n <= t->longest && (r->out[0] = lookup_tokenize_token_of(t, p, n)) >= 0) {
        r->out++;
        return;
    }
    for (const uint8_t *at = p + 1; at < end; at++) {
        if ((*at & 0xC0) == 0x80 || (*at < 0x80 && at[-1] < 0x80) || lookup_tokenize_may_join(t, p, at, end)) continue;
        take(r, from, (size_t)(at - from), t->ignore_merges);
        from = at;
    }
    take(r, from, (size_t)(end - from), t->ignore_merges);
}

void lookup_tokenize_flush(run *r) {
    for (size_t i = 0; i < r->n_queued; i++) {
        const queued *q = &r->queue[i];
        if (LIKELY(q->entry != NULL)) take_short(r, q);
        else lookup_tokenize_piece_long(r, q->at, q->size);
    }
    r->n_queued = 0;
}

void lookup_tokenize_enqueue(run *r, const uint8_t *p, size_t n) {
    if (n <= SHORT_MAX) {
        queued q = look_up(r, p, n, 0);
        PREFETCH(q.entry);
        r->queue[r->n_queued++] = q;
    } else {
        r->queue[r->n_queued++] = (queued){0, 0, NULL, p, n};
    }
    if (r->n_queued == QUEUE) lookup_tokenize_flush(r);
}
