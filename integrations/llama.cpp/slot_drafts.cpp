#include "slot_drafts.h"

#include "lookup_build.h" // sources one by one

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <utility>

namespace lookup_llama {

namespace {

constexpr const char * ADAPTIVE    = "ngram-adaptive";
constexpr int          REFRESH     = 16;         // steps between two looks at what was measured
constexpr uint64_t     MOST_BYTES  = 1ull << 30; // of the dynamic table; then nothing more is counted
constexpr int64_t      MINUTE_US   = 60 * 1000000ll;

void need(lookup_status status, const std::string & what) {
    if (status != LOOKUP_OK) throw cache_error(what + ": " + lookup_strerror(status));
}

// For calls that say themselves what is wrong.
template <typename... Arguments, typename... Given>
void told(lookup_status (*call)(Arguments...), Given... given) {
    lookup_error error {};
    if (call(given..., &error) != LOOKUP_OK) throw cache_error(error.text);
}

std::vector<std::string> names_of(const std::string & chain) {
    std::vector<std::string> names;
    std::stringstream        text(chain);
    for (std::string name; std::getline(text, name, ',');) names.push_back(name);
    return names;
}

bool has(const std::vector<std::string> & names, const char * name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// What one slot has said and what of it is known to whom.
struct slot_state {
    std::vector<core_ptr<lookup_source>> members;
    core_ptr<lookup_source> chain;           // of several members; freed before them
    lookup_source *         source = nullptr;
    std::vector<int32_t>    known;           // the history, the last sampled token included
    size_t                  seen    = 0;     // how much of it the source has been told
    size_t                  learned = 0;     // how much of it has been learned
    std::vector<int32_t>    draft;           // the last one
    bool                    ended   = false; // learned, and the source begun anew with nothing
    bool                    broken  = false; // out of memory: no drafts until the next request
};

} // namespace

static bool is_missing(const std::string & path) {
    FILE * file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return errno == ENOENT;
    std::fclose(file);
    return false;
}

static void check_chain(const std::string & chain) {
    static const char * const known[] = {ADAPTIVE, "ngram-cache", "ngram-suffix", "ngram-simple", "ngram-map-k",
                                         "ngram-map-k4v", "ngram-mod"};
    for (const auto & name : names_of(chain)) {
        const auto same = [&](const char * each) { return name == each; };
        if (std::any_of(std::begin(known), std::end(known), same)) continue;
        throw cache_error("--lookup-chain: found '" + name + "', expected ngram-adaptive, ngram-cache, ngram-suffix, "
                          "ngram-simple, ngram-map-k, ngram-map-k4v or ngram-mod");
    }
    if (chain.empty()) throw cache_error("--lookup-chain: found no names, expected at least one");
}

caches::caches(const options & wanted) {
    check_chain(wanted.chain);
    if (!wanted.static_path.empty()) {
        lookup_file * file = nullptr;
        told(lookup_file_open, wanted.static_path.c_str(), &file);
        fixed_file.reset(file);
        told(lookup_file_static, file, &fixed);
    }
    if (wanted.save && wanted.dynamic_path.empty()) {
        throw cache_error("--lookup-save: found no -lcd FILE, expected the file to save to");
    }
    lookup_table * table = nullptr;
    if (wanted.dynamic_path.empty() || (wanted.save && is_missing(wanted.dynamic_path))) {
        if (!wanted.save && !has(names_of(wanted.chain), "ngram-cache")) return;
        need(lookup_table_new(&table), "dynamic cache");
    } else {
        lookup_file * file = nullptr;
        told(lookup_file_open, wanted.dynamic_path.c_str(), &file);
        dynamic_file.reset(file);
        told(lookup_file_table, file, &table);
    }
    dynamic.reset(table);
}

static void check_file(const lookup_file * file, const vocabulary & model) {
    int32_t      verdict = LOOKUP_VOCABULARY_UNKNOWN;
    lookup_error error {};
    if (file == nullptr) return;
    need(lookup_file_check_vocabulary(file, model.fingerprint, model.size, &verdict, &error), model.name);
    if (verdict != LOOKUP_VOCABULARY_OTHER) return;
    throw cache_error(std::string(error.text) + " (" + model.name + "), or pass --lookup-ignore-vocabulary");
}

void check_vocabulary(const caches & files, const options & wanted, const vocabulary & model) {
    if (wanted.ignore_vocabulary) return;
    check_file(files.fixed_file.get(), model);
    check_file(files.dynamic_file.get(), model);
}

struct slot_drafts::impl {
    std::shared_ptr<caches>  files;
    options                  wanted;
    vocabulary               model;
    logger                   warn;
    std::vector<std::string> names;
    core_ptr<lookup_adaptive>                group; // outlives the slots' sources, which are its members
    std::vector<slot_state>  slots;

    bool                     measured = true;
    cost_meter               meter;
    cost_curve               curve, bound;
    draft_account            account;

    // the step under way
    size_t                   width = 0, n_requests = 0, n_drafted = 0, n_accepted = 0;
    int64_t                  since_us = -1;
    std::vector<bool>        present;
    uint64_t                 steps = 0;

    uint64_t                 drafted = 0, accepted = 0, tokens_learned = 0, texts_learned = 0, declined = 0;
    bool                     unsaved = false, full = false;
    int64_t                  saved_us = -1;

    std::vector<int32_t>     buffer;

    // ---- sources

    lookup_source * make(const std::string & name) {
        lookup_source *       made  = nullptr;
        const lookup_static * fixed = files->fixed;
        if (name == ADAPTIVE) {
            need(lookup_adaptive_join(group.get(), &made), name);
        } else if (name == "ngram-cache") {
            lookup_cache_params params;
            lookup_cache_defaults(&params);
            need(lookup_source_ngram_cache(&params, fixed, files->dynamic.get(), &made), name);
        } else if (name == "ngram-suffix") {
            lookup_ngram_suffix_params params;
            lookup_ngram_suffix_defaults(&params);
            params.draft = wanted.n_max;
            need(lookup_source_ngram_suffix(&params, &made), name);
        } else if (name == "ngram-simple") {
            lookup_ngram_simple_params params;
            lookup_ngram_simple_defaults(&params);
            need(lookup_source_ngram_simple(&params, &made), name);
        } else if (name == "ngram-map-k" || name == "ngram-map-k4v") {
            lookup_ngram_map_params params;
            lookup_ngram_map_defaults(&params);
            params.k4v = name == "ngram-map-k4v";
            need(lookup_source_ngram_map(&params, &made), name);
        } else if (name == "ngram-mod") {
            lookup_ngram_mod_params params;
            lookup_ngram_mod_defaults(&params);
            need(lookup_source_ngram_mod(&params, &made), name);
        }
        return made;
    }

    void make_group() {
        lookup_adaptive_params params;
        lookup_adaptive_defaults(&params);
        params.draft_max = wanted.n_max;
        lookup_adaptive * made = nullptr;
        need(lookup_adaptive_new(&params, files->fixed, files->dynamic.get(), &made), ADAPTIVE);
        group.reset(made);
    }

    void make_slot(slot_state & slot) {
        std::vector<lookup_source *> members;
        for (const auto & name : names) {
            slot.members.emplace_back(make(name));
            members.push_back(slot.members.back().get());
        }
        slot.source = members[0];
        if (members.size() == 1) return;
        lookup_source * chain = nullptr;
        need(lookup_source_chain(members.data(), members.size(), &chain), wanted.chain);
        slot.chain.reset(chain);
        slot.source = chain;
    }

    void make_all(size_t n_slots) {
        names = names_of(wanted.chain);
        if (has(names, ADAPTIVE)) make_group();
        if (has(names, "ngram-cache")) {
            lookup_cache_params params;
            lookup_cache_defaults(&params);
            need(lookup_table_index(files->dynamic.get(), &params.dynamic), "dynamic cache");
        } else if (!wanted.save) {
            files->dynamic.reset(); // the group has its own copy
        }
        slots.resize(n_slots);
        for (auto & slot : slots) make_slot(slot);
        measured = wanted.verify_cost.empty();
        if (!measured) curve = bound = cost_curve::parse(wanted.verify_cost);
        set_curve();
    }

    // ---- costs

    void set_curve() {
        if (measured) {
            curve = meter.hoped();
            bound = meter.bound();
        }
        if (!group) return;
        std::vector<int32_t> widths;
        std::vector<double>  costs;
        for (const auto & [width, cost] : curve.points) {
            widths.push_back(width);
            costs.push_back(cost);
        }
        need(lookup_adaptive_set_costs(group.get(), widths.data(), costs.data(), widths.size()), "verify cost");
    }

    // What became of the last step is known.
    void settle() {
        if (n_requests > 0) account.enter(bound, n_requests, n_drafted, std::min(n_accepted, n_drafted), (size_t) wanted.n_max);
        n_requests = n_drafted = n_accepted = 0;
    }

    // ---- what was said

    // The text of a slot is over: it is learned, and the source forgets it.
    void end(slot_state & slot) {
        if (slot.ended) return;
        const int32_t * tokens = slot.known.data();
        const size_t    n      = slot.known.size();
        if (wanted.learn && n > slot.learned) {
            if (slot.members.size() == 1 && names[0] == ADAPTIVE && !slot.broken && n >= slot.seen) {
                slot.broken = lookup_adaptive_end(slot.source, tokens, n) != LOOKUP_OK;
            }
            count(tokens + slot.learned, n - slot.learned);
            tokens_learned += n - slot.learned;
            texts_learned++;
        }
        slot.learned = n;
        slot.seen    = 0;
        slot.ended   = true;
    }

    // Into the dynamic table. N-grams do not reach back into what was learned before.
    void count(const int32_t * tokens, size_t n) {
        lookup_table * table = files->dynamic.get();
        if (table == nullptr || full) return;
        lookup_table_info info;
        lookup_table_end_stream(table);
        full = lookup_table_update(table, tokens, n) != LOOKUP_OK || lookup_table_get_info(table, &info) != LOOKUP_OK ||
               info.bytes > MOST_BYTES;
        lookup_table_end_stream(table);
        unsaved = true;
        if (full) warn("lookup: the dynamic cache has reached 1 GB; nothing more is added to it");
    }

    // Brings a slot's history up to what the engine says it is.
    void follow(slot_state & slot, const int32_t * tokens, size_t n, const int32_t * last) {
        const size_t all  = n + (last != nullptr ? 1 : 0);
        size_t       same = lookup_common_prefix(slot.known.data(), tokens, std::min(slot.known.size(), n));
        if (same == n && last != nullptr && slot.known.size() > n && slot.known[n] == *last) same = all;
        if (same < slot.seen) { // another prompt, a shifted context, or what was taken back
            end(slot);
            slot.learned = same;
        }
        slot.learned = std::min(slot.learned, same);
        slot.known.resize(same);
        if (same < n) slot.known.insert(slot.known.end(), tokens + same, tokens + n);
        if (last != nullptr && slot.known.size() == n) slot.known.push_back(*last);
    }

    void restart(slot_state & slot) {
        slot.broken = lookup_source_begin(slot.source, slot.known.data(), slot.known.size()) != LOOKUP_OK;
        slot.seen   = slot.known.size();
        slot.ended  = false;
    }

    // ---- drafting

    // Every slot for itself, one after the other.
    void draft_each(std::vector<draft_request> & requests, size_t limit) {
        for (auto & request : requests) {
            auto & slot = slots[request.slot];
            size_t n    = 0;
            buffer.resize((size_t) wanted.n_max);
            const size_t most = std::min(request.most, limit);
            if (slot.broken) continue;
            slot.broken = lookup_source_draft(slot.source, slot.known.data(), slot.known.size(), buffer.data(), nullptr, most,
                                              &n) != LOOKUP_OK;
            slot.seen   = slot.known.size();
            if (!slot.broken) request.draft.assign(buffer.begin(), buffer.begin() + (std::ptrdiff_t) n);
        }
    }

    // One budget for all of them.
    void draft_together(std::vector<draft_request> & requests, size_t limit) {
        std::vector<lookup_source *> sources;
        std::vector<const int32_t *> tokens;
        std::vector<size_t>          lengths, capacities, n_drafts(requests.size());
        std::vector<draft_request *> asked;
        for (auto & request : requests) {
            auto & slot = slots[request.slot];
            if (slot.broken) continue;
            sources.push_back(slot.source);
            tokens.push_back(slot.known.data());
            lengths.push_back(slot.known.size());
            capacities.push_back(std::min(request.most, limit));
            asked.push_back(&request);
        }
        if (asked.empty()) return;
        const size_t stride = (size_t) wanted.n_max, others = requests.size() - asked.size();
        buffer.resize(stride * asked.size());
        const lookup_status status = lookup_adaptive_draft(group.get(), sources.data(), tokens.data(), lengths.data(),
            capacities.data(), asked.size(), others, buffer.data(), stride, n_drafts.data());
        for (size_t i = 0; i < asked.size(); ++i) {
            auto & slot = slots[asked[i]->slot];
            slot.broken = status != LOOKUP_OK;
            slot.seen   = slot.known.size();
            const auto start = buffer.begin() + (std::ptrdiff_t) (i * stride);
            if (!slot.broken) asked[i]->draft.assign(start, start + (std::ptrdiff_t) n_drafts[i]);
        }
    }

    void crop(std::vector<int32_t> & draft) const {
        for (size_t i = 0; i < draft.size(); ++i) {
            const bool end = std::binary_search(model.ends.begin(), model.ends.end(), draft[i]);
            if (!end && draft[i] < model.size) continue;
            draft.resize(i);
            return;
        }
    }

    // No more tokens in all than the account can pay for: the longest drafts give way.
    static void fit(std::vector<draft_request> & requests, size_t limit) {
        size_t total = 0;
        for (const auto & request : requests) total += request.draft.size();
        for (; total > limit; --total) {
            std::max_element(requests.begin(), requests.end(), [](const auto & a, const auto & b) {
                return a.draft.size() < b.draft.size();
            })->draft.pop_back();
        }
    }

    // ---- saving

    void save_now() {
        if (!wanted.save || !unsaved) return;
        unsaved = false;
        try {
            told(lookup_table_save, files->dynamic.get(), wanted.dynamic_path.c_str(), model.fingerprint, model.size,
                 model.name.c_str());
        } catch (const std::exception & error) {
            warn(std::string("lookup: ") + error.what());
        }
    }

    void save_if_due(int64_t now_us) {
        if (!wanted.save || wanted.save_minutes == 0) return;
        if (saved_us < 0) saved_us = now_us;
        if (now_us - saved_us < wanted.save_minutes * MINUTE_US) return;
        saved_us = now_us;
        save_now();
    }
};

slot_drafts::slot_drafts(std::shared_ptr<caches> files, const options & wanted, const vocabulary & model, size_t n_slots,
                         logger warn)
    : self(std::make_unique<impl>()) {
    self->files  = std::move(files);
    self->wanted = wanted;
    self->model  = model;
    self->warn   = std::move(warn);
    std::sort(self->model.ends.begin(), self->model.ends.end());
    self->make_all(n_slots);
}

slot_drafts::~slot_drafts() {
    for (auto & slot : self->slots) self->end(slot);
    self->save_now();
}

void slot_drafts::begin(size_t slot, const int32_t * tokens, size_t n) {
    // Requests that are over have no tokens in the batch that was just decoded. What they said is
    // learned now, so that this request can be drafted from it.
    for (size_t i = 0; i < self->slots.size(); ++i) {
        if (i != slot && i < self->present.size() && !self->present[i]) self->end(self->slots[i]);
    }
    auto & mine = self->slots.at(slot);
    self->follow(mine, tokens, n, nullptr);
    mine.draft.clear();
    if (mine.ended || mine.seen == 0 || mine.broken) self->restart(mine);
}

void slot_drafts::draft(std::vector<draft_request> & requests, int64_t now_us) {
    self->settle();
    if (self->measured && (self->steps < REFRESH || self->steps % REFRESH == 0)) self->set_curve();
    self->steps++;
    size_t most = 0;
    for (auto & request : requests) {
        auto & slot = self->slots.at(request.slot);
        self->follow(slot, request.tokens, request.n, &request.last);
        if (slot.ended) self->restart(slot);
        request.most = std::min(request.most, (size_t) self->wanted.n_max);
        request.draft.clear();
        most += request.most;
    }
    const size_t limit = self->account.limit(self->bound, requests.size(), most);
    if (limit < most) self->declined++;
    if (self->group && self->names.size() == 1) self->draft_together(requests, limit);
    else self->draft_each(requests, limit);
    for (auto & request : requests) self->crop(request.draft);
    impl::fit(requests, limit);
    self->n_requests = requests.size();
    for (auto & request : requests) {
        self->slots[request.slot].draft = request.draft;
        self->n_drafted += request.draft.size();
    }
    self->drafted += self->n_drafted;
    self->width    = requests.size() + self->n_drafted;
    self->since_us = now_us;
}

void slot_drafts::decoded(size_t width, const std::vector<bool> & present, int64_t now_us) {
    // A batch with prompts in it, too, is wider and tells nothing of drafts.
    if (self->measured && self->since_us >= 0 && width == self->width) {
        self->meter.observe(width, double(now_us - self->since_us) / 1e6);
    }
    self->since_us = -1;
    self->present  = present;
    self->save_if_due(now_us);
}

void slot_drafts::accept(size_t slot, size_t n_accepted) {
    auto & mine = self->slots.at(slot);
    // Models without a cache that can be cut verify an accepted part again, and then count one more.
    n_accepted = std::min(n_accepted, mine.draft.size());
    self->n_accepted += n_accepted;
    self->accepted += n_accepted;
    if (!mine.draft.empty() && !mine.broken) (void) lookup_source_accept(mine.source, n_accepted);
    // The end of an answer comes with no further draft, so it is noted here.
    mine.known.insert(mine.known.end(), mine.draft.begin(), mine.draft.begin() + (std::ptrdiff_t) n_accepted);
    mine.draft.clear();
}

std::string slot_drafts::report() const {
    std::ostringstream out;
    out << self->accepted << " of " << self->drafted << " drafted tokens accepted in " << self->steps << " steps, "
        << self->declined << " of them short of credit; " << self->tokens_learned << " tokens of " << self->texts_learned
        << " texts learned; verify cost " << (self->measured ? "measured: " : "given: ") << self->curve.text();
    return out.str();
}

} // namespace lookup_llama
