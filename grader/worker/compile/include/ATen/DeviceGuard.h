#ifndef GRADER_LEAN
#include_next <ATen/DeviceGuard.h>
#endif
