#ifndef GRADER_LEAN
#include_next <torch/csrc/autograd/generated/variable_factories.h>
#endif
