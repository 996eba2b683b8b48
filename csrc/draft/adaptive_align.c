/* Alignments: what was said before and is being said again, with edits.
 *
 * The exact match is the longest text that ends here and ended somewhere before, of any length. The
 * alignment is such a match that is held on to when the text departs from it: after up to WINDOW
 * tokens it goes on behind the place where both agree again. What came instead is remembered by what
 * stood around it, and proposed where the same is about to break again. */
#include "adaptive_align.h"

#define WINDOW 24u
#define TAKE 4u          /* a match this long takes a broken alignment's place */
#define LONG_ENOUGH 32u  /* an exact match this long needs no other */
#define MOST_COMPARED 512u
#define NOT_SO_LONG 40u

static uint32_t end_of(const align_view *v) { return v->text[0]->end; }

static int32_t said(const align_view *v, uint32_t back) { return text_at(v->text[0], end_of(v) - back); }

static uint64_t edit_key(const align_view *v, const alignment *a, int kind, uint32_t back) {
    int32_t last = said(v, back + 1);
    int32_t other = kind == 0 ? copy_token(v, &a->aligned, 0) : said(v, back + 2);
    return ((uint64_t)(uint32_t)last << 32 | (uint32_t)other) * 2 + (uint64_t)kind;
}

static edit *edit_slot(edit_memory *m, uint64_t key, uint32_t *check) {
    uint64_t h = fmix64(key);
    *check = (uint32_t)h;
    return &m->slots[h >> (64 - EDIT_BITS)];
}

static edit *edit_for(const align_view *v, uint64_t key) {
    uint32_t check;
    edit *e = edit_slot(v->edits, key, &check);
    return e->epoch == v->edits->epoch && e->check == check ? e : NULL;
}

const edit *lookup_adaptive_edit(const align_view *v, const alignment *a, int kind) {
    if (!a->aligned.on || a->aligned.broken) return NULL;
    return edit_for(v, edit_key(v, a, kind, 0));
}

INLINE uint16_t one_more(uint16_t n) { return (uint16_t)(n + (n < UINT16_MAX)); }

static void note_edit(const align_view *v, uint64_t key, int32_t token) {
    uint32_t check;
    edit *e = edit_for(v, key);
    if (e == NULL) {
        e = edit_slot(v->edits, key, &check);
        *e = (edit){.check = check, .epoch = v->edits->epoch, .token = token, .right = 1};
    } else if (e->token == token) {
        e->right = one_more(e->right);
    } else if ((e->wrong = one_more(e->wrong)) > 1 || e->right <= 1) {
        e->token = token;
        e->right = 1;
        e->wrong = 0;
    }
}

static void note_edits(const align_view *v, const alignment *a, int32_t token, bool same) {
    for (int kind = 0; kind < EDIT_KINDS; ++kind) {
        uint64_t key = edit_key(v, a, kind, 1);
        if (same) {
            edit *e = edit_for(v, key);
            if (e != NULL) e->wrong = one_more(e->wrong);
        } else if (a->aligned.length >= 4) {
            note_edit(v, key, token);
        }
    }
}

/* The exact match ends at the first token that differs. */
static void follow_exact(const align_view *v, copying *c, int32_t token) {
    if (!c->on) return;
    if (copy_token(v, c, 0) == token) {
        ++c->next;
        ++c->length;
    } else {
        memset(c, 0, sizeof *c);
    }
}

/* What stands `k` behind the break, if that is before the last token. */
static int32_t earlier(const align_view *v, const copying *c, uint32_t k) {
    return c->tier == 0 && c->next + k >= end_of(v) - 1 ? NO_TOKEN : copy_token(v, c, k);
}

/* How far behind the break the text goes on: 0 if it does not yet. */
static uint32_t resumes(const align_view *v, const copying *c, int32_t token) {
    if (earlier(v, c, 0) == token) return 1;                      /* something was inserted */
    if (earlier(v, c, c->broken) == token) return c->broken + 1u; /* replaced, by as many */
    int32_t before = said(v, 2);
    for (uint32_t k = 1; k < WINDOW; ++k)
        if (earlier(v, c, k) == token && earlier(v, c, k - 1) == before) return k + 1;
    return 0;
}

static void follow_broken(const align_view *v, copying *c, int32_t token) {
    uint32_t by = resumes(v, c, token);
    if (by != 0) {
        c->next += by;
        c->broken = 0;
        c->length = 1;
    } else if (++c->broken > WINDOW) {
        memset(c, 0, sizeof *c);
    }
}

void lookup_adaptive_follow(const align_view *v, alignment *a, bool hit, bool known) {
    int32_t token = said(v, 1);
    copying *c = &a->aligned;
    a->hits = a->hits << 1 | hit;
    follow_exact(v, &a->exact, token);
    if (!c->on) return;
    if (c->broken) {
        follow_broken(v, c, token);
        return;
    }
    bool same = copy_token(v, c, 0) == token;
    c->misses = c->misses << 1 | !same;
    if (known) note_edits(v, a, token, same);
    if (same) {
        ++c->next;
        ++c->length;
    } else {
        c->broken = 1;
    }
}

void lookup_adaptive_realign(const align_view *v, alignment *a, const match deepest[2]) {
    copying *x = &a->exact, *c = &a->aligned;
    const tier_text *now = v->text[0];
    if (!x->on || x->length < LONG_ENOUGH)
        for (int tier = 1; tier >= 0; --tier) {
            const gram *g = deepest[tier].gram;
            if (g == NULL || !text_has(v->text[tier], g->at)) continue;
            uint32_t most = ORDER[deepest[tier].order] > 16 ? MOST_COMPARED : NOT_SO_LONG;
            uint32_t n = lookup_adaptive_common(v->text[tier], g->at, now->tokens, now->end, most);
            if (n == 0 || (x->on && n < x->length)) continue;
            *x = (copying){.next = g->at, .length = n, .tier = (uint8_t)tier, .on = true};
        }
    bool same = x->on && c->on && x->next == c->next && x->tier == c->tier;
    uint32_t enough = !c->on || c->broken || 2 * c->length < TAKE ? TAKE : 2 * c->length;
    if (x->on && !same && x->length >= enough) *c = *x;
}
