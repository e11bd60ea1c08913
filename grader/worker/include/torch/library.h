#ifndef GRADER_LEAN
#include_next <torch/library.h>
#endif
