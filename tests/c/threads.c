/* Eight threads draft from one static cache at the same time, each with a drafter and a dynamic table of its
 * own, and all draft the same. Meant for the thread sanitizer (make -C tests/c threads). */
#include <pthread.h>
#include <stdio.h>

#include "support.h"

#define THREADS 8
#define TEXT 1500
#define VOCAB 300

typedef struct {
    const lookup_static *cache;
    const int32_t *text;
    uint64_t sum;  /* of what was drafted */
    bool failed;
} job;

static void *draft_all(void *argument) {
    job *j = argument;
    lookup_table *table = NULL;
    lookup_drafter *d = NULL;
    lookup_drafter_params p;
    lookup_drafter_defaults(&p);
    p.sources = "ngram-cache,ngram-adaptive,ngram-suffix";
    p.measure = 0;
    p.dynamic_bytes = 1 << 20;
    j->failed = lookup_table_new(&table) != LOOKUP_OK || lookup_drafter_new(&p, j->cache, table, &d, NULL) != LOOKUP_OK;
    for (size_t round = 0; round < 2 && !j->failed; ++round) {
        for (size_t n = 1; n < TEXT; ++n) {
            int32_t id = 0, draft[16];
            size_t capacity = 16, n_draft = 0;
            j->failed |= lookup_drafter_follow(d, 0, j->text, n, LOOKUP_NO_TOKEN) != LOOKUP_OK;
            j->failed |= lookup_drafter_draft(d, &id, &capacity, 1, 0, draft, 16, &n_draft) != LOOKUP_OK;
            for (size_t i = 0; i < n_draft; ++i) j->sum = j->sum * 31 + (uint64_t)draft[i] + 1;
        }
        j->failed |= lookup_drafter_learn(d) != LOOKUP_OK || lookup_drafter_forget(d, 0) != LOOKUP_OK;
    }
    lookup_drafter_free(d);
    lookup_table_free(table);
    return NULL;
}

static void eight_threads_share_a_cache(void) {
    pthread_t threads[THREADS];
    job jobs[THREADS];
    int32_t *text = make_text(4 * TEXT, VOCAB, 3);
    blob file;
    lookup_static cache;
    REQUIRE(make_cache(text, 4 * TEXT, VOCAB, &file) == LOOKUP_OK);
    REQUIRE(lookup_static_open(&cache, file.data, file.size) == LOOKUP_OK);
    for (size_t i = 0; i < THREADS; ++i) {
        jobs[i] = (job){.cache = &cache, .text = text + 2 * TEXT};
        REQUIRE(pthread_create(&threads[i], NULL, draft_all, &jobs[i]) == 0);
    }
    for (size_t i = 0; i < THREADS; ++i) EXPECT(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < THREADS; ++i) EXPECT(!jobs[i].failed && jobs[i].sum != 0 && jobs[i].sum == jobs[0].sum);
    blob_free(&file);
    test_free(text);
}

int main(void) {
    RUN(eight_threads_share_a_cache);
    return test_summary();
}
