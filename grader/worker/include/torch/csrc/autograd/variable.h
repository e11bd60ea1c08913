#ifndef GRADER_LEAN
#include_next <torch/csrc/autograd/variable.h>
#endif
