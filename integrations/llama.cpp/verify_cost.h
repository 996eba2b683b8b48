// What verifying a batch costs, measured while serving, and an account that keeps drafts from making
// anything slower. Knows nothing of llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lookup_llama {

// (width, cost) points, widths rising from 1, in plain decodes of one token. Linear between them and
// on beyond the last.
class cost_curve {
  public:
    std::vector<std::pair<int32_t, double>> points {{1, 1.0}, {2, 2.0}};

    // "1:1,2:1.8,4:3"; throws std::invalid_argument.
    static cost_curve parse(const std::string & text);

    double      at(double width) const;
    std::string text() const;
};

// Medians of the latest batches of each width, so that pauses and noise do not count.
class cost_meter {
  public:
    void observe(size_t width, double seconds);
    // To draft by: widths not yet seen are hoped to be cheap, so that they are tried.
    cost_curve hoped() const { return continued(0.25); }
    // Not to be exceeded: tokens beyond what was seen cost as much as alone.
    cost_curve bound() const { return continued(1.0); }

  private:
    cost_curve continued(double slope) const;

    std::map<size_t, std::deque<double>> seconds_;
};

// The unit is one step of all requests without drafts. A step that verifies k further tokens and has
// a of them accepted wins a / n - (cost(n + k) / cost(n) - 1) for n requests. A draft is made only if
// the account could pay for it were all of it refused, so T tokens never take more than about 1.01 T
// plain steps. See lookup_tools/engine/budget.py, the same for one request.
class draft_account {
  public:
    // How many tokens all drafts of a step may have in all.
    size_t limit(const cost_curve & curve, size_t n_requests, size_t most) const;
    void   enter(const cost_curve & curve, size_t n_requests, size_t n_drafted, size_t n_accepted, size_t longest);

    double balance = 1.0;
};

} // namespace lookup_llama
