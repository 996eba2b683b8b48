// Cache files of every format, opened for drafting; a dynamic cache, saved. Knows nothing of
// llama.cpp. Whatever is wrong with a file is a cache_error with one line that names it.
#pragma once

#include "core.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lookup_llama {

struct cache_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws a cache_error that begins with `what` unless the core says ok.
void need(lookup_status status, const std::string & what);

// A read-only file in memory: mapped, so that all who use it share one copy.
class mapping {
  public:
    explicit mapping(const std::string & path);
    ~mapping();
    mapping(const mapping &) = delete;
    mapping & operator=(const mapping &) = delete;

    const unsigned char * data = nullptr;
    size_t                size = 0;
};

// What a cache says about itself; empty where it says nothing.
struct cache_meta {
    std::string tokenizer;
    std::string fingerprint; // over all of a vocabulary, merges included
    int64_t     vocab_size = 0;
    std::string json;        // all of it, to be handed on when the file is saved
};

// A static cache. A constmap is mapped and used in place; a legacy file is read once and turned into
// a map in memory.
class static_cache {
  public:
    explicit static_cache(const std::string & path);

    lookup_static view {};
    cache_meta    meta;

  private:
    void open_constmap(const std::string & path);
    void open_legacy(const std::string & path);

    std::unique_ptr<mapping> file;
    std::vector<uint64_t>    built;
};

struct table_free {
    void operator()(lookup_table * table) const { lookup_table_free(table); }
};
using table_ptr = std::unique_ptr<lookup_table, table_free>;

// Adds a dynamic cache (legacy or constmap2) to a table; returns what the file says about itself.
cache_meta load_dynamic(const std::string & path, lookup_table * table);

// All n-grams of a table as records, unsorted: what has to stand still while the table goes on.
struct table_records {
    lookup_layout         layout[LOOKUP_MAX_ORDER];
    std::vector<uint64_t> records[LOOKUP_MAX_ORDER];
};

// `n_vocab`: ids are below.
table_records copy_records(const lookup_table * table, int32_t n_vocab);

// Replaces the file at `path` by a legacy file of these n-grams, and its sidecar: whole or not at all.
void save_dynamic(const std::string & path, table_records records, const cache_meta & meta);

} // namespace lookup_llama
