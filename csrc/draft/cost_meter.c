/* What an engine's batches cost, measured while it decodes.
 *
 * Each width keeps its last observations: the engine of an hour ago does not count. A width's cost is
 * their median, so that pauses do not count, either. */
#include <stdlib.h>

#include "../core/internal.h"

#define KEPT 64    /* observations of each width */
#define ENOUGH 3   /* a median of fewer may be a single pause */
#define BEYOND 64  /* how far the curve is continued */
#define HOPE 0.25  /* what one more token is taken to cost where nothing was measured: enough to try */
#define MOST_WIDTHS (LOOKUP_ADAPTIVE_MAX_WIDTHS - 2) /* a curve may get one point before and one behind */

typedef struct {
    int32_t width;
    uint32_t n; /* observations so far */
    double seconds[KEPT];
} width_record;

struct lookup_cost_meter {
    width_record *records; /* by width */
    size_t n, capacity;
};

lookup_status lookup_cost_meter_new(lookup_cost_meter **meter) {
    CHECK(meter != NULL, LOOKUP_E_ARGUMENT);
    lookup_cost_meter *m = lookup_alloc(1, sizeof *m);
    CHECK(m != NULL, LOOKUP_E_MEMORY);
    *meter = m;
    return LOOKUP_OK;
}

void lookup_cost_meter_free(lookup_cost_meter *m) {
    if (m == NULL) return;
    lookup_free(m->records);
    lookup_free(m);
}

/* The record of a width, a new one if need be; NULL in *record if there is no space for it. */
static lookup_status record_of(lookup_cost_meter *m, int32_t width, width_record **record) {
    size_t at = 0;
    while (at < m->n && m->records[at].width < width) ++at;
    *record = NULL;
    if (at < m->n && m->records[at].width == width) {
        *record = &m->records[at];
        return LOOKUP_OK;
    }
    if (m->n == MOST_WIDTHS) return LOOKUP_OK;
    if (m->n == m->capacity) {
        size_t capacity = m->capacity > 0 ? 2 * m->capacity : 16;
        width_record *records = lookup_realloc(m->records, capacity, sizeof *records);
        CHECK(records != NULL, LOOKUP_E_MEMORY);
        m->records = records;
        m->capacity = capacity;
    }
    memmove(m->records + at + 1, m->records + at, (m->n - at) * sizeof *m->records);
    m->records[at] = (width_record){.width = width};
    m->n++;
    *record = &m->records[at];
    return LOOKUP_OK;
}

lookup_status lookup_cost_meter_observe(lookup_cost_meter *m, int32_t width, double seconds) {
    CHECK(m != NULL, LOOKUP_E_ARGUMENT);
    if (width < 1 || !(seconds > 0 && seconds < 1e9)) return LOOKUP_OK;
    width_record *r;
    TRY(record_of(m, width, &r));
    if (r != NULL) r->seconds[r->n++ % KEPT] = seconds;
    return LOOKUP_OK;
}

static int compare_doubles(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double median(const width_record *r) {
    double sorted[KEPT];
    size_t n = r->n < KEPT ? r->n : KEPT;
    memcpy(sorted, r->seconds, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Seconds of the widths that are known, one of width 1 before all others. An engine whose slots are
 * always busy never shows that width: then it is where the line through the two narrowest points
 * ends, at least in proportion to the first one and at most as much. */
static size_t known(const lookup_cost_meter *m, int32_t *widths, double *seconds) {
    size_t n = 1;
    for (size_t i = 0; i < m->n; ++i) {
        const width_record *r = &m->records[i];
        if (r->n < ENOUGH) continue;
        size_t at = r->width == 1 ? 0 : n++;
        widths[at] = r->width;
        seconds[at] = median(r);
        if (at == 0) widths[0] = 1;
    }
    bool single = m->n > 0 && m->records[0].width == 1 && m->records[0].n >= ENOUGH;
    if (single) return n;
    if (n < 3) return 0;
    double slope = (seconds[2] - seconds[1]) / (widths[2] - widths[1]);
    double least = seconds[1] / widths[1], one = seconds[1] - slope * (widths[1] - 1);
    widths[0] = 1;
    seconds[0] = one < least ? least : one > seconds[1] ? seconds[1] : one;
    return n;
}

double lookup_cost_meter_single(const lookup_cost_meter *m) {
    int32_t widths[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    double seconds[LOOKUP_ADAPTIVE_MAX_WIDTHS];
    return m != NULL && known(m, widths, seconds) > 0 ? seconds[0] : 0;
}

/* The points go on by `slope` a token where they end, or by their own last slope if that is known
 * to lie between a quarter of `slope` and 1. */
static size_t continued(int32_t *widths, double *costs, size_t n, double slope) {
    if (n == 0) {
        widths[0] = 1;
        costs[0] = 1;
        n = 1;
    }
    if (n > 1 && slope < 1) {
        double last = (costs[n - 1] - costs[n - 2]) / (widths[n - 1] - widths[n - 2]);
        slope = last < slope / 4 ? slope / 4 : last;
        slope = slope < 1 ? slope : 1;
    }
    if (widths[n - 1] > INT32_MAX - BEYOND) return n;
    widths[n] = widths[n - 1] + BEYOND;
    costs[n] = costs[n - 1] + BEYOND * slope;
    return n + 1;
}

lookup_status lookup_cost_meter_curve(const lookup_cost_meter *m, int32_t kind, int32_t *widths, double *costs, size_t *n) {
    CHECK(m && widths && costs && n, LOOKUP_E_ARGUMENT);
    CHECK(kind >= LOOKUP_COST_MEASURED && kind <= LOOKUP_COST_BOUND, LOOKUP_E_ARGUMENT);
    size_t found = known(m, widths, costs);
    double highest = 1, single = found > 0 ? costs[0] : 1;
    for (size_t i = 0; i < found; ++i) {
        double cost = costs[i] / single;
        highest = cost > highest ? cost : highest;
        costs[i] = highest;
    }
    if (kind != LOOKUP_COST_MEASURED) found = continued(widths, costs, found, kind == LOOKUP_COST_HOPED ? HOPE : 1);
    *n = found;
    return LOOKUP_OK;
}
