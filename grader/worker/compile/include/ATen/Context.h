#ifndef GRADER_LEAN
#include_next <ATen/Context.h>
#endif
