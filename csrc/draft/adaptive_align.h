/* Alignments with earlier text: see adaptive_align.c. */
#ifndef LOOKUP_ADAPTIVE_ALIGN_H
#define LOOKUP_ADAPTIVE_ALIGN_H

#include "adaptive_grams.h"

/* One text that is being said again. */
typedef struct {
    uint32_t next;    /* where the token to come stands (or should have stood, while broken) */
    uint32_t length;  /* tokens that agreed; for an alignment: since it was last broken */
    uint32_t misses;  /* one bit a token, the newest lowest: not what was expected */
    uint8_t broken;   /* tokens since the alignment broke */
    uint8_t tier;     /* of `next`: 0 context, 1 dynamic */
    bool on;
} copying;

/* An n-gram of a tier that the history ends in. An n-gram that was seen once stands for the longer
 * ones, too, so `order` may be above its own. */
typedef struct {
    const gram *gram;
    int order;
} match;

typedef struct {
    copying exact;   /* the longest match that ends here */
    copying aligned; /* goes on after an insertion, an omission or a replacement */
    uint32_t hits;   /* was the likeliest candidate right? the newest lowest */
} alignment;

/* What came where an alignment broke. */
typedef struct {
    uint32_t check, epoch;
    int32_t token;
    uint16_t right, wrong;
} edit;

#define EDIT_BITS 12
#define EDIT_KINDS 2

typedef struct {
    edit slots[1 << EDIT_BITS];
    uint32_t epoch;
} edit_memory;

/* Where the tokens are that alignments speak of. The history is the context's text. */
typedef struct {
    const tier_text *text[2]; /* by tier; NULL if there is none */
    edit_memory *edits;
} align_view;

INLINE int32_t copy_token(const align_view *v, const copying *c, uint32_t ahead) {
    return c->on ? text_at(v->text[c->tier], c->next + ahead) : NO_TOKEN;
}

/* The edit known for the token to come: `kind` 0 by the last token and the one that the alignment
 * has next, 1 by the last two tokens. NULL if there is none. */
const edit *lookup_adaptive_edit(const align_view *v, const alignment *a, int kind);
/* The last token of the context's text became known (`known`), or is supposed in a draft. */
void lookup_adaptive_follow(const align_view *v, alignment *a, bool hit, bool known);
/* `deepest[tier]` is the longest n-gram found before the token to come, or none. */
void lookup_adaptive_realign(const align_view *v, alignment *a, const match deepest[2]);

#endif
