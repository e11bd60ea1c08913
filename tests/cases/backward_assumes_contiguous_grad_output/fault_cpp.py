"""data_ptr() of whatever grad_output is."""

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

extern "C" void backward(
    const float* grad_output, const float* x, const float* scale, const float* y,
    float* grad_x, float* grad_scale, float* grad_bias, int64_t size, int64_t channels) {
    for (int64_t i = 0; i < size; i++) {
        float g = y[i] > 0 ? grad_output[i] : 0.0f;
        grad_x[i] = g * scale[i % channels];
        grad_scale[i % channels] += g * x[i];
        grad_bias[i % channels] += g;
    }
}
"""

kernels = ctypes.CDLL(
    load_inline("scale_bias_relu", source, extra_cflags=["-O2"], no_implicit_headers=True, is_python_module=False)
)


def call(function, *arguments):
    """Call a function of the extension with the addresses of tensors."""
    function(*(ctypes.c_void_p(one.data_ptr()) if torch.is_tensor(one) else ctypes.c_int64(one) for one in arguments))


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.empty_like(x)
        call(kernels.forward, x, scale, bias, y, x.numel(), scale.numel())
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        grads = torch.empty_like(x), torch.zeros_like(scale), torch.zeros_like(scale)
        call(kernels.backward, grad_output, x, scale, y, *grads, x.numel(), scale.numel())
        return grads


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
