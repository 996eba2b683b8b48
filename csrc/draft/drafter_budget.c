/* When to stop drafting: an account of what drafts have won and what their batches have cost.
 *
 * A batch of w tokens that would be decoded anyway, widened by k drafted ones, takes longer; in tokens
 * that this time is worth without drafts, its stake is  w * (cost(w + k) - cost(w)) / cost(w).  What it
 * wins are the drafted tokens accepted. The account starts with CREDIT, gains RATE with every token
 * that is said, and is never overdrawn: drafts are as long as it could pay for if all of them were
 * refused. So drafting never costs more than CREDIT and the share RATE of the time, as far as the
 * curve is true, and drafts that pay are never held back. What it may hold is bounded, so that after
 * much code a page of prose is noticed soon. */
#include "drafter.h"

#define CREDIT 1.0
#define RATE 0.01
#define FULL_DRAFTS 2.0 /* what a full account can pay for */

void lookup_budget_start(budget *b) {
    b->balance = CREDIT;
    b->open = false;
}

void lookup_budget_settle(budget *b) {
    if (!b->open) return;
    b->open = false;
    double now = b->balance - b->stake + (double)b->said;
    b->balance = now < b->full ? now : b->full;
}

static double stake_of(const budget *b, size_t width, size_t drafted) {
    double plain = lookup_adaptive_cost(&b->curve, width);
    double more = lookup_adaptive_cost(&b->curve, width + drafted) - plain;
    return more > 0 ? (double)width * more / plain : 0;
}

/* The longest draft loses a token, the last of several such. */
static void shorten(size_t n, size_t *n_drafts) {
    size_t longest = 0;
    for (size_t i = 1; i < n; ++i)
        if (n_drafts[i] >= n_drafts[longest]) longest = i;
    n_drafts[longest]--;
}

size_t lookup_budget_limit(budget *b, size_t width, size_t n, size_t most, size_t *n_drafts) {
    size_t drafted = 0, cut = 0;
    for (size_t i = 0; i < n; ++i) drafted += n_drafts[i];
    while (drafted > 0 && stake_of(b, width, drafted) > b->balance) {
        shorten(n, n_drafts);
        --drafted;
        ++cut;
    }
    double full = FULL_DRAFTS * stake_of(b, width, n * most);
    b->full = full > CREDIT ? full : CREDIT;
    b->stake = stake_of(b, width, drafted) - RATE * (double)n;
    b->said = 0;
    b->open = true;
    return cut;
}
