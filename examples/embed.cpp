// The same as embed.c for two sequences that share each batch, with RAII, learning and a saved table.
//   embed_cpp CACHE LEARNED.lcd < ids
#include <lookup.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

template <auto Free>
struct Freed {
    template <class T>
    void operator()(T *object) const { Free(object); }
};
using File = std::unique_ptr<lookup_file, Freed<lookup_file_close>>;
using Table = std::unique_ptr<lookup_table, Freed<lookup_table_free>>;
using Drafter = std::unique_ptr<lookup_drafter, Freed<lookup_drafter_free>>;

lookup_error error = {""};

void need(lookup_status status) {
    if (status != LOOKUP_OK) throw std::runtime_error(error.text[0] ? error.text : lookup_strerror(status));
}

void run(const char *cache_path, const char *learned_path) {
    const std::vector<int32_t> text{std::istream_iterator<int32_t>(std::cin), {}};
    lookup_file *opened = nullptr;
    need(lookup_file_open(cache_path, &opened, &error));
    const File file(opened);
    const lookup_static *cache = nullptr;
    need(lookup_file_static(file.get(), &cache, &error));
    lookup_table *made = nullptr;
    need(lookup_table_new(&made));
    const Table table(made);

    lookup_drafter_params params;
    lookup_drafter_defaults(&params);
    params.sources = "ngram-adaptive,ngram-suffix";
    params.n_sequences = 2;
    params.measure = 0;
    lookup_drafter *started = nullptr;
    need(lookup_drafter_new(&params, cache, table.get(), &started, &error));
    const Drafter drafter(started);

    const int32_t sequences[2] = {0, 1};
    const size_t capacity[2] = {8, 8};
    int32_t drafts[16];
    size_t n[2] = {1, 1}, n_drafts[2], accepted = 0;
    while (std::min(n[0], n[1]) < text.size()) {
        for (const int32_t s : sequences) need(lookup_drafter_follow(drafter.get(), s, text.data(), n[s], LOOKUP_NO_TOKEN));
        need(lookup_drafter_draft(drafter.get(), sequences, capacity, 2, 0, drafts, 8, n_drafts));
        for (const int32_t s : sequences) {
            size_t right = 0;
            while (right < n_drafts[s] && n[s] + right < text.size() && drafts[8 * s + right] == text[n[s] + right]) ++right;
            need(lookup_drafter_accept(drafter.get(), s, right));
            n[s] = std::min(n[s] + right + 1, text.size());
            accepted += right;
        }
    }
    need(lookup_drafter_learn(drafter.get()));
    need(lookup_table_save(table.get(), learned_path, 0, 0, nullptr, &error));
    std::cout << accepted << " accepted in two sequences\n";
}

} // namespace

int main(int argc, char **argv) try {
    if (argc != 3) return std::cerr << "usage: embed_cpp CACHE LEARNED.lcd < ids\n", 2;
    run(argv[1], argv[2]);
} catch (const std::exception &failure) {
    std::cerr << failure.what() << "\n";
    return 1;
}
