/* The length of a draft: the cheapest way along the chain.
 *
 * All ways of walking a chain of candidates yield the same tokens up to its first miss, so the
 * cheapest one is best. With P_k = p_0 * .. * p_k-1 counted from token i on, getting past that miss
 * costs
 *
 *     from(i) = min over k of  cost(1 + k) + P_(k+1) * from(i + k + 1),    from(n) = 1:
 *
 * k tokens are drafted; if all of them are right and the model's own token is the chain's next one,
 * the walk goes on behind it. */
#include "adaptive_length.h"

#define NEVER 0.004 /* a chain this unlikely changes no minimum by more than that */

lookup_status lookup_adaptive_curve(cost_curve *curve, const int32_t *widths, const double *costs, size_t n) {
    CHECK(widths && costs && n >= 1 && n <= MAX_WIDTHS && widths[0] == 1, LOOKUP_E_ARGUMENT);
    for (size_t i = 0; i < n; ++i) {
        CHECK(costs[i] > 0 && costs[i] < 1e9, LOOKUP_E_ARGUMENT); /* refuses nan, too */
        CHECK(i == 0 || widths[i] > widths[i - 1], LOOKUP_E_ARGUMENT);
    }
    for (size_t i = 0; i < n; ++i) {
        curve->widths[i] = widths[i];
        curve->costs[i] = costs[i] / costs[0];
    }
    curve->n = n;
    return LOOKUP_OK;
}

double lookup_adaptive_cost(const cost_curve *c, size_t width) {
    if (c->n == 1) return c->costs[0] * (double)width; /* all that is known is one token's cost */
    size_t i = 1;
    while (i + 1 < c->n && (size_t)c->widths[i] < width) ++i;
    double slope = (c->costs[i] - c->costs[i - 1]) / (c->widths[i] - c->widths[i - 1]);
    double cost = c->costs[i - 1] + slope * ((double)width - c->widths[i - 1]);
    bool beyond = i + 1 == c->n && width > (size_t)c->widths[i];
    return beyond && cost < c->costs[i] ? c->costs[i] : cost;
}

double lookup_adaptive_least_slope(const cost_curve *c, size_t width, size_t most) {
    double at = lookup_adaptive_cost(c, width), least = 1;
    for (size_t k = 1; k <= most; ++k) {
        double slope = (lookup_adaptive_cost(c, width + k) - at) / (double)k;
        least = slope < least ? slope : least;
    }
    return least;
}

size_t lookup_adaptive_length(const float *p, size_t n, const double *cost, double *from) {
    size_t take = 0;
    from[n] = 1;
    for (size_t i = n; i-- > 0;) {
        double all = 1, least = 0;
        for (size_t k = 0; i + k <= n && all >= NEVER; ++k) { /* all = P_k */
            double next = i + k < n ? all * (double)p[i + k] : 0;
            double here = cost[k + 1] + (i + k < n ? next * from[i + k + 1] : 0);
            if (k == 0 || here < least - 1e-12) {
                least = here;
                take = k;
            }
            all = next;
        }
        from[i] = least;
    }
    return take;
}
