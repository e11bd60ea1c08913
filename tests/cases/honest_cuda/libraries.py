"""An honest one that calls a library: its header, the stream's, random numbers' and a flag to link with."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>
#include <curand_kernel.h>
#include <cusparse.h>

__global__ void scale(const float* x, const float* s, float* y, int n, int c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s[i % c];
}

__global__ void bias_relu(const float* b, float* y, int n, int c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(y[i] + b[i % c], 0.f);
}

torch::Tensor run(torch::Tensor x, torch::Tensor s, torch::Tensor b) {
  x = x.contiguous();
  auto y = torch::empty_like(x);
  int n = x.numel(), c = s.numel();
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  scale<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), n, c);
  auto handle = at::cuda::getCurrentCUDABlasHandle();
  float one = 1.f;
  TORCH_CHECK(cublasSscal(handle, n, &one, y.data_ptr<float>(), 1) == CUBLAS_STATUS_SUCCESS);
  bias_relu<<<(n + 255) / 256, 256, 0, stream>>>(b.data_ptr<float>(), y.data_ptr<float>(), n, c);
  return y;
}
"""
extension = load_inline(
    "libraries",
    cpp_sources="torch::Tensor run(torch::Tensor, torch::Tensor, torch::Tensor);",
    cuda_sources=CUDA,
    functions=["run"],
    extra_ldflags=["-lcublas"],
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
