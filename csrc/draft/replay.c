/* Replaying a text against a draft source: the text's own tokens stand in for the model. */
#include "source.h"

/* Enters one step: a draft of `n_draft` tokens of which the first `n_accept` are accepted. */
static void record(lookup_replay_stats *st, const uint8_t *tiers, size_t n_draft, size_t n_accept) {
    st->n_decode++;
    st->n_drafted += n_draft;
    st->n_accept += n_accept;
    st->drafted_steps += n_draft > 0;
    st->drafted_length[n_draft]++;
    st->accepted_length[n_accept]++;
    for (size_t i = 0; i < n_accept; ++i) st->accepted_at[i]++;
    for (size_t i = 0; i < n_draft; ++i) st->tier_drafted[tiers[i]]++;
    for (size_t i = 0; i < n_accept; ++i) st->tier_accepted[tiers[i]]++;
}

static lookup_status accept(lookup_source *source, size_t n_draft, size_t n_accept, lookup_replay_stats *st) {
    if (n_draft == 0) return LOOKUP_OK;
    st->calls_accept++;
    st->gen_drafts++;
    st->acc_drafts += n_accept > 0;
    st->gen_tokens += n_draft;
    st->acc_tokens += n_accept;
    return source->calls->accept(source, n_accept);
}

lookup_status lookup_replay_chunk(lookup_source *source, const int32_t *tokens, size_t n, size_t n_prompt,
                                  size_t draft_max, lookup_replay_stats *stats) {
    CHECK(source && stats && n > n_prompt && tokens != NULL, LOOKUP_E_ARGUMENT);
    CHECK(draft_max >= 1 && draft_max <= LOOKUP_MAX_DRAFT, LOOKUP_E_ARGUMENT);
    int32_t draft[LOOKUP_MAX_DRAFT];
    uint8_t tiers[LOOKUP_MAX_DRAFT] = {0};
    stats->calls_begin++;
    TRY(source->calls->begin(source, tokens, n_prompt));
    size_t at = n_prompt + 1; /* tokens known; the last of them was sampled by the model */
    stats->n_produced += n - at;
    while (at < n) {
        size_t n_draft = 0, n_accept = 0;
        stats->calls_draft++;
        TRY(source->calls->draft(source, tokens, at, draft, tiers, draft_max, &n_draft));
        while (n_accept < n_draft && at + n_accept < n && draft[n_accept] == tokens[at + n_accept]) ++n_accept;
        record(stats, tiers, n_draft, n_accept);
        TRY(accept(source, n_draft, n_accept, stats));
        at += n_accept;
        at += at < n; /* the model's own token */
    }
    return LOOKUP_OK;
}
