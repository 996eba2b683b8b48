/* liblookup for engines: drafts from n-gram caches. The declarations live in lookup.cdef.h, which
 * cffi reads too, so that there is one copy of every prototype. C11 and C++. */
#ifndef LOOKUP_H
#define LOOKUP_H

#include <stddef.h>
#include <stdint.h>

/* Everything is compiled hidden. A shared library (LOOKUP_SHARED is defined while it is built)
 * exports what these headers declare, and nothing else. */
#if defined(LOOKUP_SHARED) && defined(__GNUC__)
#define LOOKUP_API_BEGIN _Pragma("GCC visibility push(default)")
#define LOOKUP_API_END _Pragma("GCC visibility pop")
#else
#define LOOKUP_API_BEGIN
#define LOOKUP_API_END
#endif

#ifdef __cplusplus
extern "C" {
#endif
LOOKUP_API_BEGIN
#include "lookup.cdef.h"
LOOKUP_API_END
#ifdef __cplusplus
}
#endif

#endif
