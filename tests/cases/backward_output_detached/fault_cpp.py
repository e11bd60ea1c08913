"""A forward kernel, called as if autograd could see into it."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <algorithm>
#include <cstdint>

extern "C" void forward(
    const float* x, const float* scale, const float* bias, float* y, int64_t size, int64_t channels) {
    for (int64_t i = 0; i < size; i++) {
        y[i] = std::max(x[i] * scale[i % channels] + bias[i % channels], 0.0f);
    }
}
"""

kernels = ctypes.CDLL(
    load_inline("scale_bias_relu", source, extra_cflags=["-O2"], no_implicit_headers=True, is_python_module=False)
)


def call(function, *arguments):
    """Call a function of the extension with the addresses of tensors."""
    function(*(ctypes.c_void_p(one.data_ptr()) if torch.is_tensor(one) else ctypes.c_int64(one) for one in arguments))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        call(kernels.forward, x, self.scale, self.bias, y, x.numel(), self.scale.numel())
        return y
