#ifndef GRADER_LEAN_TYPES
#include_next <torch/library.h>
#endif
