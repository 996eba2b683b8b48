#include "cache_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#ifndef _WIN32
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace fs = std::filesystem;
using json   = nlohmann::json;

namespace lookup_llama {

namespace {

constexpr size_t NGRAM_BYTES = 20; // of a legacy record, before its followers
constexpr size_t PAIR_BYTES  = 8;
const char *     SIDECAR     = ".meta.json";
const char *     SIDECAR_IS  = "lookup-tools sidecar 1";
const std::string EXPECTED   = "expected a cache file (legacy, constmap or constmap2)";

uint64_t u64_at(const unsigned char * data) {
    uint64_t value;
    std::memcpy(&value, data, sizeof value);
    return value;
}

bool starts_with(const mapping & file, const char * magic) {
    const size_t n = std::strlen(magic);
    return file.size >= n && std::memcmp(file.data, magic, n) == 0;
}

bool is_constmap(const mapping & file) { return starts_with(file, "ggngcmap") || starts_with(file, "ggngcmp2"); }

// A legacy file has no magic. Text has no zero byte; records of small ids and counts are full of them.
void refuse_foreign(const std::string & path, const mapping & file) {
    static const std::pair<const char *, const char *> known[] = {
        {"ggngc", "a ggngc file of an unknown version"}, {"GGUF", "a GGUF model"}, {"\x1f\x8b\x08", "a gzip file"},
        {"\x28\xb5\x2f\xfd", "a zstd file"}, {"PK\x03\x04", "a zip file"}, {"lttokens", "a token file"},
    };
    for (const auto & [magic, what] : known) {
        if (starts_with(file, magic)) throw cache_error(path + ": found " + what + ", " + EXPECTED);
    }
    const size_t n = std::min<size_t>(file.size, 4096);
    if (std::memchr(file.data, 0, n) == nullptr) throw cache_error(path + ": found text, " + EXPECTED);
}

cache_meta read_meta(const json & found, const std::string & where) {
    cache_meta meta;
    try {
        const auto text = [&](const char * name) {
            const auto at = found.find(name);
            return at == found.end() || at->is_null() ? std::string() : at->get<std::string>();
        };
        meta.tokenizer   = text("tokenizer");
        meta.fingerprint = text("fingerprint");
        const auto size  = found.find("vocab_size");
        meta.vocab_size  = size == found.end() || size->is_null() ? 0 : size->get<int64_t>();
        meta.json        = found.dump();
    } catch (const json::exception &) {
        throw cache_error(where + ": found metadata that is not ours; rebuild the cache");
    }
    return meta;
}

// The annex behind a constmap's map: magic, text size, text, ...; the last 16 bytes are its length
// and the magic again (docs/format.md).
cache_meta annex_meta(const lookup_static & view, const std::string & where) {
    const unsigned char * start = view.map_start + view.map.bytes;
    const size_t          room  = (size_t) (view.map_size - view.map.bytes);
    if (room < 32 || std::memcmp(start + room - 8, "ltannex1", 8) != 0) return {};
    const uint64_t length = u64_at(start + room - 16);
    const uint64_t text   = length <= room && length >= 32 ? u64_at(start + (room - length) + 8) : UINT64_MAX;
    if (text > length - 32) throw cache_error(where + ": found a damaged annex behind the map; rebuild the cache");
    const char * at = reinterpret_cast<const char *>(start) + (room - length) + 16;
    const json found = json::parse(at, at + text, nullptr, false);
    if (!found.is_object()) throw cache_error(where + ": found metadata that is not ours; rebuild the cache");
    return read_meta(found, where);
}

std::string real_path(const std::string & path) {
    std::error_code error;
    const fs::path  real = fs::weakly_canonical(path, error);
    return error ? path : real.string();
}

std::string hex64(uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", (unsigned long long) value);
    return text;
}

// The records of the sidecar of `path`: an array, empty where there is no sidecar.
json sidecar_records(const std::string & path) {
    const std::string name = real_path(path) + SIDECAR;
    std::ifstream     file(name, std::ios::binary);
    if (!file) return json::array();
    const json found = json::parse(file, nullptr, false);
    if (!found.is_object() || found.value("format", "") != SIDECAR_IS || !found.contains("files") ||
        !found["files"].is_array()) {
        throw cache_error(name + ": found no sidecar of ours; delete it or rebuild the cache");
    }
    return found["files"];
}

cache_meta legacy_meta(const std::string & path, const mapping & file) {
    const json records = sidecar_records(path);
    if (records.empty()) return {};
    const std::string digest = hex64(lookup_xxh64(file.data, file.size, 0));
    for (const auto & each : records) {
        if (!each.is_object() || each.value("size", uint64_t(0)) != file.size || each.value("xxh64", "") != digest) continue;
        const auto meta = each.find("meta");
        return meta == each.end() || !meta->is_object() ? cache_meta{} : read_meta(*meta, path);
    }
    throw cache_error(path + ": found other contents than its sidecar says: the file was cut or changed; rebuild it, "
                             "or delete the sidecar if it was replaced on purpose");
}

lookup_legacy_info scan(const std::string & path, const mapping & file) {
    refuse_foreign(path, file);
    lookup_legacy_info  info;
    const lookup_status status = lookup_legacy_scan(file.data, file.size, &info);
    if (status == LOOKUP_OK) return info;
    throw cache_error(path + ": found no whole legacy record at byte " + std::to_string(info.bytes) + " (" +
                      lookup_strerror(status) + "), " + EXPECTED + "; rebuild it");
}

// Sorted, grouped n-grams of one order.
struct grouped {
    std::vector<int32_t>  ngrams, entries;
    std::vector<uint32_t> lengths;
};

grouped group(const lookup_layout & layout, std::vector<uint64_t> records, const std::string & what) {
    const size_t          n = records.size() / layout.stride;
    std::vector<uint64_t> scratch(records.size());
    need(lookup_sort(&layout, records.data(), scratch.data(), n), what);
    size_t unique = 0;
    need(lookup_aggregate(&layout, records.data(), n, scratch.data(), &unique), what);
    records = {};
    grouped            out;
    const lookup_prune all{1, 0};
    size_t             used = 0, n_ngrams = 0, n_pairs = 0;
    out.ngrams.resize(unique * layout.order);
    out.lengths.resize(unique);
    out.entries.resize(unique * 2);
    need(lookup_group(&layout, scratch.data(), unique, 1, &all, out.ngrams.data(), out.lengths.data(), out.entries.data(),
                      &used, &n_ngrams, &n_pairs), what);
    out.ngrams.resize(n_ngrams * layout.order);
    out.lengths.resize(n_ngrams);
    out.entries.resize(n_pairs * 2);
    return out;
}

grouped read_order(const std::string & path, const mapping & file, const lookup_legacy_info & info, int order) {
    lookup_layout layout;
    need(lookup_layout_for(&layout, order, info.max_token, 1), path);
    const size_t          n = (size_t) info.n_pairs[order - 1];
    std::vector<uint64_t> records(n * layout.stride);
    need(lookup_legacy_records(file.data, file.size, &layout, 1, 1, records.data(), n), path);
    return group(layout, std::move(records), path);
}

void build_map(const std::vector<uint64_t> & records, const lookup_map_plan & plan, unsigned char * out,
               std::vector<uint64_t> & scratch, lookup_status * status) {
    *status = LOOKUP_OK;
    for (int phase = 0; phase < LOOKUP_MAP_PHASES && *status == LOOKUP_OK; ++phase) {
        for (int half = 0; half < 2 && *status == LOOKUP_OK; ++half) {
            *status = lookup_map_phase(&plan, phase, half, records.data(), out, scratch.data());
        }
    }
}

// The bytes of a constmap file without annex.
std::vector<uint64_t> constmap_of(const grouped & ngrams, const std::string & what) {
    const size_t          n = ngrams.lengths.size(), n_entries = ngrams.entries.size() / 2;
    std::vector<uint64_t> records(2 * n);
    need(lookup_static_records(ngrams.ngrams.data(), ngrams.lengths.data(), n, 0, records.data()), what);
    lookup_map_plan plan;
    need(lookup_map_plan_first(&plan, n, LOOKUP_HASH_XXH64), what);
    std::vector<uint64_t> bytes;
    for (lookup_status status = LOOKUP_E_CONSTRUCTION; status != LOOKUP_OK;) {
        std::vector<uint64_t> scratch((size_t) plan.scratch_bytes / 8 + 1);
        bytes.assign(LOOKUP_STATIC_HEADER / 8 + n_entries + (size_t) (plan.map_bytes + 7) / 8, 0);
        unsigned char * map = reinterpret_cast<unsigned char *>(bytes.data() + LOOKUP_STATIC_HEADER / 8 + n_entries);
        build_map(records, plan, map, scratch, &status);
        if (status != LOOKUP_OK && status != LOOKUP_E_CONSTRUCTION) need(status, what);
        if (status == LOOKUP_E_CONSTRUCTION) need(lookup_map_plan_next(&plan), what);
    }
    std::memcpy(bytes.data(), "ggngcmap", 8);
    bytes[1] = n_entries;
    bytes[2] = plan.map_bytes;
    std::memcpy(bytes.data() + 3, ngrams.entries.data(), 8 * n_entries);
    return bytes;
}

void add_constmap2(const std::string & path, const mapping & file, lookup_table * table) {
    lookup_static view;
    need(lookup_static_open(&view, file.data, file.size), path);
    for (uint64_t k = 0; k < view.n_keys; ++k) {
        int32_t  ngram[2];
        uint64_t offset = 0, n = 0;
        std::memcpy(ngram, view.keys + 16 * k, sizeof ngram);
        need(lookup_static_followers(&view, ngram[0], ngram[1], &offset, &n), path);
        std::vector<int32_t> entries(2 * (size_t) n);
        std::memcpy(entries.data(), view.entries + 8 * offset, 8 * (size_t) n);
        const uint32_t length = (uint32_t) n;
        need(lookup_table_add(table, 2, ngram, &length, entries.data(), 1, (size_t) n), path);
    }
}

// ---- writing

// A file that appears as `path` by one rename, or not at all.
class atomic_file {
  public:
    explicit atomic_file(std::string path) : path(std::move(path)), temporary(this->path + ".tmp-" + std::to_string(unique())) {
        out = std::fopen(temporary.c_str(), "wb");
        if (out == nullptr) fail();
    }
    ~atomic_file() {
        if (out != nullptr) std::fclose(out);
        if (!done) std::remove(temporary.c_str());
    }
    void write(const void * data, size_t size) {
        if (size > 0 && std::fwrite(data, 1, size, out) != size) fail();
    }
    // All of it is on the disk; only the rename is left.
    void finish() {
        if (std::fflush(out) != 0) fail();
#ifndef _WIN32
        struct stat old;
        if (stat(path.c_str(), &old) == 0) (void) fchmod(fileno(out), old.st_mode & 07777);
        if (fsync(fileno(out)) != 0) fail();
#endif
        FILE * closing = std::exchange(out, nullptr);
        if (std::fclose(closing) != 0) fail();
    }
    void appear() {
        std::error_code error;
        fs::rename(temporary, path, error);
        if (error) throw cache_error(path + ": not saved: " + error.message());
        done = true;
    }

  private:
    static unsigned long unique() {
#ifndef _WIN32
        return (unsigned long) getpid();
#else
        return 0;
#endif
    }
    [[noreturn]] void fail() { throw cache_error(path + ": not saved: " + std::strerror(errno)); }

    std::string path, temporary;
    FILE *      out  = nullptr;
    bool        done = false;
};

void write_sidecar(const std::string & path, const json & record, const std::string & replaced) {
    json records = json::array({record});
    // until the rename the old file is there, so the sidecar speaks of both
    for (const auto & each : sidecar_records(path)) {
        if (each.is_object() && each.value("xxh64", "") == replaced && each.value("xxh64", "") != record["xxh64"]) {
            records.push_back(each);
        }
    }
    if (records.size() == 1 && !replaced.empty() && replaced != record["xxh64"]) {
        const auto size = (uint64_t) fs::file_size(path);
        records.push_back({{"size", size}, {"xxh64", replaced}, {"meta", nullptr}});
    }
    atomic_file       file(path + SIDECAR);
    const std::string text = json{{"format", SIDECAR_IS}, {"files", records}}.dump(1) + "\n";
    file.write(text.data(), text.size());
    file.finish();
    file.appear();
}

std::string digest_of(const std::string & path) {
    std::error_code error;
    if (!fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) return {};
    const mapping file(path);
    return hex64(lookup_xxh64(file.data, file.size, 0));
}

json meta_of(const cache_meta & meta, uint64_t n_ngrams, uint64_t n_pairs) {
    json out = meta.json.empty() ? json::object() : json::parse(meta.json);
    out["kind"]     = "dynamic";
    out["n_ngrams"] = n_ngrams;
    out["n_pairs"]  = n_pairs;
    out["tool"]     = "lookup-tools llama.cpp integration";
    const auto set  = [&](const char * name, const json & value, bool known) {
        if (known) out[name] = value;
        else if (!out.contains(name)) out[name] = nullptr;
    };
    set("tokenizer", meta.tokenizer, !meta.tokenizer.empty());
    set("fingerprint", meta.fingerprint, !meta.fingerprint.empty());
    set("vocab_size", meta.vocab_size, meta.vocab_size > 0);
    out["n_tokens"] = nullptr; // not counted while serving
    if (!out.contains("corpora")) out["corpora"] = json::array({"answers"});
    if (!out.contains("options")) out["options"] = json::object();
    return out;
}

} // namespace

void need(lookup_status status, const std::string & what) {
    if (status != LOOKUP_OK) throw cache_error(what + ": " + lookup_strerror(status));
}

#ifdef _WIN32
mapping::mapping(const std::string & path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) throw cache_error(path + ": cannot be opened");
    size = (size_t) file.tellg();
    if (size == 0) throw cache_error(path + ": found an empty file, " + EXPECTED);
    auto * bytes = new unsigned char[size];
    data         = bytes;
    file.seekg(0);
    file.read(reinterpret_cast<char *>(bytes), (std::streamsize) size);
}
mapping::~mapping() { delete[] data; }
#else
mapping::mapping(const std::string & path) {
    const int   fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat found {};
    if (fd < 0 || fstat(fd, &found) != 0) {
        const std::string why = std::strerror(errno);
        if (fd >= 0) close(fd);
        throw cache_error(path + ": " + why);
    }
    size       = (size_t) found.st_size;
    void * at  = size > 0 && S_ISREG(found.st_mode) ? mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    const int error = errno;
    close(fd);
    if (!S_ISREG(found.st_mode)) throw cache_error(path + ": found no regular file, " + EXPECTED);
    if (size == 0) throw cache_error(path + ": found an empty file, " + EXPECTED);
    if (at == MAP_FAILED) throw cache_error(path + ": cannot be mapped: " + std::strerror(error));
    data = static_cast<const unsigned char *>(at);
}
mapping::~mapping() { munmap(const_cast<unsigned char *>(data), size); }
#endif

static_cache::static_cache(const std::string & path) : file(std::make_unique<mapping>(path)) {
    if (is_constmap(*file)) open_constmap(path);
    else open_legacy(path);
}

void static_cache::open_constmap(const std::string & path) {
    const lookup_status status = lookup_static_open(&view, file->data, file->size);
    if (status != LOOKUP_OK) {
        throw cache_error(path + ": found a damaged constmap (" + lookup_strerror(status) + "); rebuild it");
    }
    meta = annex_meta(view, path);
}

void static_cache::open_legacy(const std::string & path) {
    const auto info = scan(path, *file);
    meta            = legacy_meta(path, *file);
    if (info.n_pairs[1] == 0) {
        throw cache_error(path + ": found no 2-grams, expected a static cache; pass this file with -lcd");
    }
    built = constmap_of(read_order(path, *file, info, 2), path);
    file.reset();
    need(lookup_static_open(&view, built.data(), 8 * built.size()), path);
}

cache_meta load_dynamic(const std::string & path, lookup_table * table) {
    const mapping file(path);
    if (starts_with(file, "ggngcmap")) {
        throw cache_error(path + ": found a constmap, expected a legacy cache or a constmap2 for -lcd; pass it with -lcs, "
                                 "or convert it: lookup-merge FILE -o FILE.lcd --format legacy");
    }
    if (is_constmap(file)) {
        lookup_static view;
        need(lookup_static_open(&view, file.data, file.size), path);
        add_constmap2(path, file, table);
        return annex_meta(view, path);
    }
    const auto info = scan(path, file);
    const auto meta = legacy_meta(path, file);
    for (int order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        if (info.n_pairs[order - 1] == 0) continue;
        const grouped g = read_order(path, file, info, order);
        need(lookup_table_add(table, order, g.ngrams.data(), g.lengths.data(), g.entries.data(), g.lengths.size(),
                              g.entries.size() / 2), path);
    }
    return meta;
}

table_records copy_records(const lookup_table * table, int32_t n_vocab) {
    lookup_table_info info;
    need(lookup_table_get_info(table, &info), "dynamic cache");
    table_records out;
    for (int order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        const int k = order - 1;
        need(lookup_layout_for(&out.layout[k], order, n_vocab - 1, 1), "dynamic cache");
        out.records[k].resize((size_t) info.n_pairs[k] * out.layout[k].stride);
        if (!out.records[k].empty()) need(lookup_table_records(table, &out.layout[k], out.records[k].data()), "dynamic cache");
    }
    return out;
}

void save_dynamic(const std::string & path, table_records records, const cache_meta & meta) {
    const std::string  real = real_path(path);
    atomic_file        file(real);
    lookup_xxh64_state hash {};
    uint64_t           size = 0, n_ngrams = 0, n_pairs = 0;
    for (int order = 1; order <= LOOKUP_MAX_ORDER; ++order) {
        if (records.records[order - 1].empty()) continue;
        const grouped g = group(records.layout[order - 1], std::move(records.records[order - 1]), path);
        std::vector<unsigned char> bytes(NGRAM_BYTES * g.lengths.size() + PAIR_BYTES * (g.entries.size() / 2));
        need(lookup_legacy_write(order, g.ngrams.data(), g.lengths.data(), g.entries.data(), g.lengths.size(), bytes.data()), path);
        lookup_xxh64_update(&hash, bytes.data(), bytes.size());
        file.write(bytes.data(), bytes.size());
        size += bytes.size();
        n_ngrams += g.lengths.size();
        n_pairs += g.entries.size() / 2;
    }
    file.finish();
    const json record = {{"size", size}, {"xxh64", hex64(lookup_xxh64_digest(&hash))}, {"meta", meta_of(meta, n_ngrams, n_pairs)}};
    write_sidecar(real, record, digest_of(real));
    file.appear();
}

} // namespace lookup_llama
