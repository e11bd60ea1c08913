#ifndef GRADER_LEAN_TYPES
#include_next <torch/csrc/autograd/variable.h>
#endif
