"""The honest twin of the CUDA submissions that cheat."""

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

torch::Tensor run(torch::Tensor x, torch::Tensor s, torch::Tensor b) {
  auto y = torch::empty_like(x);
  int n = x.numel(), c = s.numel();
  kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), s.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n, c);
  return y;
}

"""
extension = load_inline(
    "fused",
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
