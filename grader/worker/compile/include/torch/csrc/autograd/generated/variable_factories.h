#ifndef GRADER_LEAN_TYPES
#include_next <torch/csrc/autograd/generated/variable_factories.h>
#endif
