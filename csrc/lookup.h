/* The public API of the C core as a compiler reads it. The declarations live in lookup.cdef.h,
 * which cffi reads too, so that there is one copy of every prototype. */
#ifndef LOOKUP_H
#define LOOKUP_H

#include <stddef.h>
#include <stdint.h>

#include "lookup.cdef.h"

#endif
