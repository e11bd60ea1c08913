#ifndef GRADER_LEAN_TYPES
#include_next <ATen/ATen.h>
#endif
