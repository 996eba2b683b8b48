/* Which keys hold n-grams of an order and a vocabulary. */
#include "layout.h"

bool lookup_layout_valid(const lookup_layout *l) {
    return l != NULL && l->order >= 1 && l->order <= LOOKUP_MAX_ORDER && l->bits >= 1 && l->bits <= 31 &&
           l->key_words == (key_bits(l) + 63) / 64 &&
           (l->stride == l->key_words || l->stride == l->key_words + 1);
}

lookup_status lookup_layout_for(lookup_layout *layout, int32_t order, int32_t max_token, int32_t counted) {
    CHECK(layout != NULL && order >= 1 && order <= LOOKUP_MAX_ORDER, LOOKUP_E_ARGUMENT);
    CHECK(max_token >= 0, LOOKUP_E_TOKEN);
    int32_t bits = 1;
    while (bits < 31 && (max_token >> bits) != 0) ++bits;
    lookup_layout l = {.order = order, .bits = bits, .key_words = (bits * (order + 1) + 63) / 64};
    l.stride = l.key_words + (counted != 0);
    *layout = l;
    return LOOKUP_OK;
}
