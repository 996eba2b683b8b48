/* Drafts from a cache file for a text that is already known, as an engine would: open, draft, compare
 * with what is said next, accept.   embed CACHE < ids   (numbers of the model's vocabulary) */
#include <lookup.h>

#include <stdio.h>

int main(int argc, char **argv) {
    static int32_t text[65536];
    size_t n_text = 0, drafted = 0, accepted = 0;
    lookup_error error = {""};
    lookup_file *file = NULL;
    const lookup_static *cache = NULL;
    lookup_drafter *drafter = NULL;
    lookup_drafter_params params;
    if (argc != 2) return fprintf(stderr, "usage: embed CACHE < ids\n"), 2;
    while (n_text < sizeof text / sizeof *text && scanf("%d", &text[n_text]) == 1) ++n_text;

    lookup_drafter_defaults(&params); /* ngram-adaptive, one sequence, drafts of up to 16 tokens */
    params.measure = 0;               /* nothing is decoded here, so there is no time to measure */
    lookup_status status = lookup_file_open(argv[1], &file, &error);
    if (!status) status = lookup_file_static(file, &cache, &error);
    if (!status) status = lookup_drafter_new(&params, cache, NULL, &drafter, &error);

    for (size_t n = 1; n < n_text && !status;) {
        int32_t sequence = 0, draft[16];
        size_t capacity = 16, n_draft = 0, right = 0;
        status = lookup_drafter_follow(drafter, sequence, text, n, LOOKUP_NO_TOKEN);
        if (!status) status = lookup_drafter_draft(drafter, &sequence, &capacity, 1, 0, draft, capacity, &n_draft);
        /* An engine decodes here: the last token and the draft in one batch. */
        while (right < n_draft && n + right < n_text && draft[right] == text[n + right]) ++right;
        if (!status) status = lookup_drafter_accept(drafter, sequence, right);
        drafted += n_draft;
        accepted += right;
        n += right + 1; /* and the token that the model said itself */
    }
    if (status) fprintf(stderr, "%s\n", error.text[0] ? error.text : lookup_strerror(status));
    else printf("%zu tokens, %zu drafted, %zu accepted\n", n_text, drafted, accepted);
    lookup_drafter_free(drafter);
    lookup_file_close(file);
    return status ? 1 : 0;
}
