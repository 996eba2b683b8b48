#ifndef SECOND_H
#define SECOND_H

#include "lookup_build.h"

lookup_status second_unit(void);
const char *second_sentence(lookup_status status);

#endif
