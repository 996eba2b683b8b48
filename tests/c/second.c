/* A second translation unit that includes the API header: it may define nothing, only declare. */
#include "lookup_build.h"
#include "second.h"

lookup_status second_unit(void) { return LOOKUP_E_ARGUMENT; }
const char *second_sentence(lookup_status status) { return lookup_strerror(status); }
