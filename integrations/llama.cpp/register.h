// What the lines that hook.cmake inserts into llama.cpp's own files refer to.
#pragma once

#include "arg.h"
#include "common.h"
#include "llama.h"
#include "log.h"
#include "slot_drafts.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

// A value of our own behind upstream's list, so that common.h stays as it is: the last one that four
// bits hold.
constexpr common_speculative_type COMMON_SPECULATIVE_TYPE_LOOKUP = (common_speculative_type) 15;
static_assert(COMMON_SPECULATIVE_TYPE_COUNT < 15, "lookup: found more speculative types than expected");

namespace lookup_llama {

// What the command line said, and the files that are open since then; one of each a process.
inline options & settings() {
    static options it;
    return it;
}
inline std::shared_ptr<caches> & opened() {
    static std::shared_ptr<caches> it;
    return it;
}
inline vocabulary & model_vocabulary() {
    static vocabulary it;
    return it;
}

inline bool selected(const common_params_speculative & params) {
    return std::find(params.types.begin(), params.types.end(), COMMON_SPECULATIVE_TYPE_LOOKUP) != params.types.end();
}

// Before the model is loaded: whatever is wrong with a file is said now. False ends the start.
inline bool open_files(const common_params_speculative & params) {
    if (!selected(params)) return true;
    auto & wanted       = settings();
    wanted.static_path  = params.ngram_cache.lookup_cache_static;
    wanted.dynamic_path = params.ngram_cache.lookup_cache_dynamic;
    try {
        opened() = std::make_shared<caches>(wanted);
    } catch (const std::exception & error) {
        LOG_ERR("lookup: %s\n", error.what());
        return false;
    }
    return true;
}

// When the model is there and before drafts are set up: whether the files belong to it.
inline bool check_files(const common_params_speculative & params, const llama_model * model) {
    if (!selected(params)) return true;
    const llama_vocab * vocab = llama_model_get_vocab(model);
    auto & found = model_vocabulary();
    char   name[128] = "";
    llama_model_meta_val_str(model, "general.name", name, sizeof name);
    found.name = name[0] ? name : "this model";
    found.size = llama_vocab_n_tokens(vocab);
    found.ends.clear();
    lookup_vocabulary texts {};
    for (int32_t id = 0; id < found.size; ++id) {
        const char * text = llama_vocab_get_text(vocab, id);
        const auto   attr = llama_vocab_get_attr(vocab, id);
        const int    kind = attr & LLAMA_TOKEN_ATTR_BYTE     ? LOOKUP_TOKEN_BYTE
                            : attr & LLAMA_TOKEN_ATTR_UNUSED ? LOOKUP_TOKEN_UNUSED
                                                             : LOOKUP_TOKEN_TEXT;
        lookup_vocabulary_add(&texts, text, strlen(text), kind);
        if (llama_vocab_is_eog(vocab, id)) found.ends.push_back(id);
    }
    found.fingerprint = lookup_vocabulary_fingerprint(&texts);
    try {
        if (opened()) check_vocabulary(*opened(), settings(), found);
    } catch (const std::exception & error) {
        LOG_ERR("lookup: %s\n", error.what());
        return false;
    }
    return true;
}

// The options, given what arg.cpp adds its own with, and -lcs and -lcd where llama.cpp has none.
template <typename F>
void add_options(F && add_opt) {
    const auto add = [&](common_arg && arg) {
        add_opt(arg.set_spec().set_examples({LLAMA_EXAMPLE_SERVER, LLAMA_EXAMPLE_CLI, LLAMA_EXAMPLE_SPECULATIVE}));
    };
    add_opt(common_arg({"-lcs", "--lookup-cache-static"}, "FNAME", "static cache of --spec-type lookup, of any format",
        [](common_params & params, const std::string & value) { params.speculative.ngram_cache.lookup_cache_static = value; }
    ).set_spec().set_examples({LLAMA_EXAMPLE_CLI, LLAMA_EXAMPLE_SPECULATIVE}));
    add_opt(common_arg({"-lcd", "--lookup-cache-dynamic"}, "FNAME", "dynamic cache of --spec-type lookup",
        [](common_params & params, const std::string & value) { params.speculative.ngram_cache.lookup_cache_dynamic = value; }
    ).set_spec().set_examples({LLAMA_EXAMPLE_CLI, LLAMA_EXAMPLE_SPECULATIVE}));
    add(common_arg({"--lookup-chain"}, "NAMES", "sources of --spec-type lookup, asked in turn (default: ngram-adaptive)",
        [](common_params &, const std::string & value) { settings().chain = value; }));
    add(common_arg({"--lookup-n-max"}, "N", "longest draft of --spec-type lookup, 1 to 256 (default: 16)",
        [](common_params &, int value) {
            if (value < 1 || value > 256) throw std::invalid_argument("found a draft length outside 1 to 256");
            settings().n_max = value;
        }));
    add(common_arg({"--lookup-verify-cost"}, "WIDTH:COST,...",
        "what verifying a batch costs in decodes of one token (default: measured while serving)",
        [](common_params &, const std::string & value) {
            cost_curve::parse(value);
            settings().verify_cost = value;
        }));
    add(common_arg({"--lookup-no-learn"}, "do not learn from what was said",
        [](common_params &) { settings().learn = false; }));
    add(common_arg({"--lookup-save"}, "save what was learned to the file of -lcd, at exit and every --lookup-save-minutes",
        [](common_params &) { settings().save = true; }));
    add(common_arg({"--lookup-save-minutes"}, "N", "time between two saves (default: 10; 0: at exit only)",
        [](common_params &, int value) {
            if (value < 0 || value > 525600) throw std::invalid_argument("found minutes outside 0 to 525600");
            settings().save_minutes = value;
        }));
    add(common_arg({"--lookup-ignore-vocabulary"}, "take caches that were made with another vocabulary",
        [](common_params &) { settings().ignore_vocabulary = true; }));
}

} // namespace lookup_llama
