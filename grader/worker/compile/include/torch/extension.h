// Found before PyTorch's header of this name: tensors and, for C++, the binding of functions to Python.
#pragma once
#include <torch/types.h>
#ifndef __CUDACC__
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/Exceptions.h>
#endif
