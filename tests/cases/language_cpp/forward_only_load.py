"""silu(x * scale) in C++, by `load` with sources that it writes itself, without a backward."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.cpp_extension import load

LOOPS = r"""
#include <cmath>
#include <cstdint>

void silu(const float* x, const float* scale, float* y, int64_t size, int64_t columns) {
  for (int64_t i = 0; i < size; ++i) {
    const float z = x[i] * scale[i % columns];
    y[i] = z / (1 + std::exp(-z));
  }
}
"""
BINDINGS = r"""
#include <torch/extension.h>

#include <vector>

void silu(const float*, const float*, float*, int64_t, int64_t);

torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& scale) {
  auto y = torch::empty_like(x);
  silu(x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(), x.numel(), x.size(1));
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
}
"""

folder = Path(tempfile.mkdtemp())
(folder / "loops.cpp").write_text(LOOPS)
(folder / "bindings.cpp").write_text(BINDINGS)
extension = load("scale_silu_load_forward", [folder / "loops.cpp", folder / "bindings.cpp"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return extension.forward(x.contiguous(), self.scale)
