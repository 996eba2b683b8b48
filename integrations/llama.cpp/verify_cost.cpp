#include "verify_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>

namespace lookup_llama {

namespace {

constexpr size_t KEPT        = 64;   // batches of each width; the machine of an hour ago does not count
constexpr size_t ENOUGH      = 3;    // a median of fewer may be a single pause
constexpr double BEYOND      = 64;   // how far a curve is drawn on
constexpr double CREDIT      = 1.0;
constexpr double RATE        = 0.01; // gained with every token
constexpr double FULL_DRAFTS = 2.0;  // what a full account can pay for

double median(std::deque<double> values) {
    const auto middle = values.begin() + (std::ptrdiff_t) (values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// What a step of `n` requests pays for `k` drafted tokens, all of them refused.
double stake(const cost_curve & curve, size_t n, size_t k) { return curve.at((double) (n + k)) / curve.at((double) n) - 1; }

} // namespace

cost_curve cost_curve::parse(const std::string & text) {
    cost_curve curve;
    curve.points.clear();
    std::stringstream pairs(text);
    for (std::string pair; std::getline(pairs, pair, ',');) {
        int    width = 0, end = 0;
        double cost  = 0;
        const bool whole = std::sscanf(pair.c_str(), "%d:%lf%n", &width, &cost, &end) == 2 && (size_t) end == pair.size();
        const bool rises = curve.points.empty() ? width == 1 : width > curve.points.back().first;
        if (!whole || !rises || !std::isfinite(cost) || cost <= 0) {
            throw std::invalid_argument("found '" + text + "', expected costs as width:cost, widths rising from 1: 1:1,2:1.8,4:3");
        }
        curve.points.emplace_back(width, cost);
    }
    if (curve.points.empty()) throw std::invalid_argument("found no costs, expected some as width:cost: 1:1,2:1.8,4:3");
    const double single = curve.points[0].second;
    for (auto & point : curve.points) point.second /= single;
    if (curve.points.size() == 1) curve.points.emplace_back(2, 2.0);
    return curve;
}

double cost_curve::at(double width) const {
    size_t right = 1;
    while (right + 1 < points.size() && points[right].first < width) ++right;
    const auto & [w0, c0] = points[right - 1];
    const auto & [w1, c1] = points[right];
    if (width > w1 && c1 < c0) return c1;
    return c0 + (c1 - c0) * (width - w0) / (w1 - w0);
}

std::string cost_curve::text() const {
    std::string out;
    for (const auto & [width, cost] : points) {
        char part[32];
        std::snprintf(part, sizeof part, "%s%d:%.2f", out.empty() ? "" : ",", (int) width, cost);
        out += part;
    }
    return out;
}

void cost_meter::observe(size_t width, double seconds) {
    if (width < 1 || !(seconds > 0)) return;
    auto & known = seconds_[width];
    known.push_back(seconds);
    if (known.size() > KEPT) known.pop_front();
}

cost_curve cost_meter::continued(double slope) const {
    std::vector<std::pair<int32_t, double>> known;
    for (const auto & [width, seconds] : seconds_) {
        if (seconds.size() < ENOUGH) continue;
        const double now = median(seconds);
        known.emplace_back((int32_t) width, known.empty() ? now : std::max(now, known.back().second)); // costs never fall
    }
    cost_curve curve;
    curve.points = {{1, 1.0}};
    if (!known.empty()) {
        const auto & [first, seconds] = known[0];
        // With several requests at once no batch is that of a single token: what one would cost is
        // then guessed, which moves the unit and no comparison of two widths.
        const double single = seconds / (1 + slope * (first - 1));
        for (const auto & [width, time] : known) {
            if (width > 1) curve.points.emplace_back(width, time / single);
        }
        const size_t n = curve.points.size();
        if (n > 1 && slope < 1) {
            const double last = (curve.points[n - 1].second - curve.points[n - 2].second) /
                                (curve.points[n - 1].first - curve.points[n - 2].first);
            slope = std::min(1.0, std::max(slope / 4, last));
        }
    }
    const auto [last, cost] = curve.points.back();
    curve.points.emplace_back(last + (int32_t) BEYOND, cost + BEYOND * slope);
    return curve;
}

size_t draft_account::limit(const cost_curve & curve, size_t n, size_t most) const {
    size_t k = 0;
    while (k < most && stake(curve, n, k + 1) <= balance) ++k;
    return k;
}

void draft_account::enter(const cost_curve & curve, size_t n, size_t n_drafted, size_t n_accepted, size_t longest) {
    const double won  = (double) n_accepted / (double) n - stake(curve, n, n_drafted);
    const double most = std::max(CREDIT, FULL_DRAFTS * stake(curve, n, longest));
    balance = std::min(most, balance + won + RATE * (1 + (double) n_accepted / (double) n));
}

} // namespace lookup_llama
