"""silu(x * scale) in CUDA, by `load` with sources that it writes itself, without a backward."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.cpp_extension import load

KERNELS = r"""
#include <cstdint>

__global__ void silu(const float* x, const float* scale, float* y, int64_t size, int64_t columns) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  const float z = i < size ? x[i] * scale[i % columns] : 0;
  if (i < size) y[i] = z / (1 + expf(-z));
}

void launch_silu(
    const float* x, const float* scale, float* y, int64_t size, int64_t columns, cudaStream_t stream) {
  silu<<<(size + 255) / 256, 256, 0, stream>>>(x, scale, y, size, columns);
}
"""
BINDINGS = r"""
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

#include <vector>

void launch_silu(const float*, const float*, float*, int64_t, int64_t, cudaStream_t);

torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& scale) {
  auto y = torch::empty_like(x);
  launch_silu(x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(), x.numel(), x.size(1),
              c10::cuda::getCurrentCUDAStream());
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
}
"""

folder = Path(tempfile.mkdtemp())
(folder / "kernels.cu").write_text(KERNELS)
(folder / "bindings.cpp").write_text(BINDINGS)
extension = load("scale_silu_load_forward", [folder / "kernels.cu", folder / "bindings.cpp"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return extension.forward(x.contiguous(), self.scale)
