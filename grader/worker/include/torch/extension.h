// Found before PyTorch's own header of this name when a .cu file is compiled. Kernels need tensors, not the Python
// bindings, and parsing the bindings three times over is most of what nvcc does for a typical submission.
#ifdef __CUDACC__
#include <torch/types.h>
#else
#include_next <torch/extension.h>
#endif
