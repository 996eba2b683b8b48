// The C core, for C++.
#pragma once

extern "C" {
#include "lookup.h"
}
