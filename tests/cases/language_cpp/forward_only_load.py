"""silu(x * scale) in C++, by `load` with sources that it writes itself, without a backward."""

import ctypes
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.cpp_extension import load

SILU = r"""
#include <cmath>

float silu(float z) { return z / (1 + std::exp(-z)); }
"""
LOOP = r"""
#include <cstdint>

float silu(float);

extern "C" void forward(const float* x, const float* scale, float* y, int64_t size, int64_t columns) {
  for (int64_t i = 0; i < size; ++i) y[i] = silu(x[i] * scale[i % columns]);
}
"""

folder = Path(tempfile.mkdtemp())
(folder / "silu.cpp").write_text(SILU)
(folder / "loop.cpp").write_text(LOOP)
extension = ctypes.CDLL(
    load("scale_silu_load_forward", [folder / "silu.cpp", folder / "loop.cpp"], is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        addresses = (ctypes.c_void_p(one.data_ptr()) for one in (x, self.scale, y))
        extension.forward(*addresses, ctypes.c_int64(x.numel()), ctypes.c_int64(x.size(1)))
        return y
