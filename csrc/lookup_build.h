/* liblookup for tools: what builds, checks and measures cache files, beside lookup.h. */
#ifndef LOOKUP_BUILD_H
#define LOOKUP_BUILD_H

#include "lookup.h"

#ifdef __cplusplus
extern "C" {
#endif
LOOKUP_API_BEGIN
#include "lookup_build.cdef.h"
LOOKUP_API_END
#ifdef __cplusplus
}
#endif

#endif
