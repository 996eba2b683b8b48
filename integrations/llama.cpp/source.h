// Included by speculative.cpp behind its private base class: llama.cpp's calls, handed on.
struct common_speculative_impl_lookup : public common_speculative_impl {
    std::unique_ptr<lookup_llama::slot_drafts> drafts;
    std::vector<lookup_llama::draft_request>   requests;

    common_speculative_impl_lookup(const common_params_speculative & params, uint32_t n_seq)
        : common_speculative_impl(COMMON_SPECULATIVE_TYPE_LOOKUP, n_seq, lookup_llama::settings().n_max) {
        using namespace lookup_llama;
        if (!opened() && !open_files(params)) { // a program other than the server
            throw std::runtime_error("lookup: a cache cannot be used");
        }
        drafts = std::make_unique<slot_drafts>(std::move(opened()), settings(), model_vocabulary(), n_seq,
            [](const std::string & line) { LOG_WRN("%s\n", line.c_str()); });
        opened().reset();
        const auto & wanted = settings();
        SPC_INF("lookup: chain=%s, n_max=%d, static=%s, dynamic=%s, learn=%d, save=%d\n", wanted.chain.c_str(), wanted.n_max,
                wanted.static_path.empty() ? "none" : wanted.static_path.c_str(),
                wanted.dynamic_path.empty() ? "none" : wanted.dynamic_path.c_str(), wanted.learn, wanted.save);
    }

    ~common_speculative_impl_lookup() override {
        SPC_INF("lookup: %s\n", drafts->report().c_str());
    }

    void begin(llama_seq_id seq_id, const llama_tokens & prompt) override {
        SPC_TRC("statistics lookup: %s\n", drafts->report().c_str());
        drafts->begin(seq_id, prompt.data(), prompt.size());
    }

    bool process(const common_batch & batch) override {
        std::vector<bool> present(n_seq);
        for (const auto & token : batch.tokens) {
            if (token.seq_id >= 0 && token.seq_id < (llama_seq_id) n_seq) present[token.seq_id] = true;
        }
        drafts->decoded(batch.tokens.size(), present, ggml_time_us());
        return true;
    }

    void draft(common_speculative_draft_params_vec & dparams) override {
        requests.clear();
        for (size_t slot = 0; slot < dparams.size(); ++slot) {
            const auto & dp = dparams[slot];
            if (!dp.drafting) continue;
            // One token less than allowed: a draft that fills the context ends an answer early, with
            // its own tokens lost.
            const size_t most = dp.n_max >= 0 ? std::min(n_max, std::max(0, dp.n_max - 1)) : n_max;
            requests.push_back({slot, dp.prompt->data(), dp.prompt->size(), dp.id_last, most, {}});
        }
        drafts->draft(requests, ggml_time_us());
        for (auto & request : requests) *dparams[request.slot].result = request.draft;
    }

    void accept(llama_seq_id seq_id, uint16_t n_accepted, bool is_other) override {
        if (!is_other) drafts->accept(seq_id, n_accepted);
    }
};
