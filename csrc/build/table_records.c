/* A dynamic table's counts as sorted-run records, the form in which files are built. */
#include "../core/layout.h"
#include "../core/table.h"

lookup_status lookup_table_records(const lookup_table *t, const lookup_layout *layout, uint64_t *records) {
    CHECK(t && layout && records && layout->stride == layout->key_words + 1, LOOKUP_E_ARGUMENT);
    int32_t tokens[STATES];
    size_t words = (size_t)layout->key_words;
    for (uint32_t id = 1; id < t->n_nodes; ++id) {
        if (t->nodes[id].count == 0 || lookup_table_path(t, id, tokens) != layout->order + 1) continue;
        uint32_t one = 1;
        TRY(lookup_expand(layout, tokens, &one, (const int32_t[]){tokens[layout->order], (int32_t)t->nodes[id].count}, 1, 1, 1, 1, records));
        records += words + 1;
    }
    return LOOKUP_OK;
}
