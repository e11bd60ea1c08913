#ifndef GRADER_LEAN
#include_next <ATen/ATen.h>
#endif
