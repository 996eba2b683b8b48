// Drafts for all slots of a server, which share one mapped cache, what is learned, and one budget.
// Knows nothing of llama.cpp. Not for two threads at once.
#pragma once

#include "lookup.h"
#include "verify_cost.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lookup_llama {

// What is wrong with a file or an option, in one line.
struct cache_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct core_free {
    void operator()(lookup_file * file) const { lookup_file_close(file); }
    void operator()(lookup_table * table) const { lookup_table_free(table); }
    void operator()(lookup_source * source) const { lookup_source_free(source); }
    void operator()(lookup_adaptive * group) const { lookup_adaptive_free(group); }
};
template <typename T>
using core_ptr = std::unique_ptr<T, core_free>;

struct options {
    std::string static_path, dynamic_path;
    std::string chain        = "ngram-adaptive";
    std::string verify_cost;           // empty: measured while serving
    int32_t     n_max        = 16;     // longest draft
    int32_t     save_minutes = 10;     // between two saves; 0: at the end only
    bool        learn        = true;   // from what was said
    bool        save         = false;  // to dynamic_path
    bool        ignore_vocabulary = false;
};

// The files of a server, open. The static one is mapped once for all slots.
struct caches {
    explicit caches(const options & wanted); // throws cache_error

    core_ptr<lookup_file>  fixed_file, dynamic_file;
    const lookup_static *  fixed = nullptr;
    core_ptr<lookup_table> dynamic; // what -lcd held, and then what was said
};

// Ids of the model.
struct vocabulary {
    std::string          name;
    int32_t              size = INT32_MAX;
    uint64_t             fingerprint = 0;
    std::vector<int32_t> ends; // a draft stops before these: the end is the model's to say
};

// Throws cache_error if a file says that it belongs to another vocabulary.
void check_vocabulary(const caches & files, const options & wanted, const vocabulary & model);

struct draft_request {
    size_t          slot;
    const int32_t * tokens; // everything known but the last sampled token
    size_t          n;
    int32_t         last;
    size_t          most;   // tokens that the engine has a use for

    std::vector<int32_t> draft; // the answer
};

class slot_drafts {
  public:
    using logger = std::function<void(const std::string &)>;

    // Throws cache_error. `warn` hears what goes wrong later.
    slot_drafts(std::shared_ptr<caches> files, const options & wanted, const vocabulary & model, size_t n_slots, logger warn);
    ~slot_drafts(); // learns and saves what is left

    slot_drafts(const slot_drafts &) = delete;
    slot_drafts & operator=(const slot_drafts &) = delete;

    // A request's prompt was decoded.
    void begin(size_t slot, const int32_t * tokens, size_t n);
    // Drafts for all slots of the next batch.
    void draft(std::vector<draft_request> & requests, int64_t now_us);
    // A batch of `width` tokens has been decoded; `present[slot]` where it has tokens of a slot.
    void decoded(size_t width, const std::vector<bool> & present, int64_t now_us);
    // What the model confirmed of a slot's last draft.
    void accept(size_t slot, size_t n_accepted);

    // One line for people: what was drafted, learned and measured so far.
    std::string report() const;

  private:
    struct impl;
    std::unique_ptr<impl> self;
};

} // namespace lookup_llama
