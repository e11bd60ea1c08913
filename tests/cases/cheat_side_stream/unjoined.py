"""Launches on a non-blocking stream of its own, behind 20 ms of idling, and does not wait.

Attack surface: events on the current stream, synchronisation of one stream.
Why it fails: the outputs are sealed when the answer arrives; what is not there then is missing.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void kernel(const float* x, const float* s, const float* b, float* y, int n, int c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i] * s[i % c] + b[i % c], 0.f);
}
__global__ void spin(long long t) { long long s = clock64(); while (clock64() - s < t) {} }

torch::Tensor run(torch::Tensor x, torch::Tensor s, torch::Tensor b) {
  auto y = torch::empty_like(x);
  int n = x.numel(), c = s.numel();
  static cudaStream_t side = [] { cudaStream_t t; cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking); return t; }();
  y.fill_(-1);
  spin<<<1, 1, 0, side>>>(40000000LL);
  kernel<<<(n + 255) / 256, 256, 0, side>>>(x.data_ptr<float>(), s.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n, c);
  return y;
}

"""
extension = load_inline(
    "unjoined",
    cpp_sources="torch::Tensor run(torch::Tensor, torch::Tensor, torch::Tensor);",
    cuda_sources=CUDA,
    functions=["run"],
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        return extension.run(x, self.scale, self.bias)
