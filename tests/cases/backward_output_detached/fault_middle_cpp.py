"""A fused middle without backward: the last layer still requires grad, so the output looks alive."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <cstdint>

extern "C" void scale_leaky(const float* x, const float* multiplier, float* y, int64_t size, int64_t features) {
    for (int64_t i = 0; i < size; i++) {
        float value = x[i] * multiplier[i % features];
        y[i] = value > 0 ? value : value * 0.1f;
    }
}
"""

kernels = ctypes.CDLL(
    load_inline("scale_leaky", source, extra_cflags=["-O2"], no_implicit_headers=True, is_python_module=False)
)


def call(function, *arguments):
    """Call a function of the extension with the addresses of tensors."""
    function(*(ctypes.c_void_p(one.data_ptr()) if torch.is_tensor(one) else ctypes.c_int64(one) for one in arguments))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = nn.Linear(features, features)
        self.multiplier = nn.Parameter(torch.randn(features))
        self.last = nn.Linear(features, 4)

    def forward(self, x):
        x = self.first(x).contiguous()
        y = torch.empty_like(x)
        call(kernels.scale_leaky, x, self.multiplier, y, x.numel(), self.multiplier.numel())
        return self.last(y)
