"""Has an extension of the same name as its twin's, which was built just before."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void run(const float* x, const float* scale, const float* bias, float* y, long size, long channels) {
  for (long i = 0; i < size; ++i) {
    const float value = x[i] * scale[i % channels] + bias[i % channels];
    y[i] = value > 0 ? value : 0;
  }
}
"""
extension = ctypes.CDLL(
    load_inline("scale_bias_relu_extension", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        addresses = (ctypes.c_void_p(one.data_ptr()) for one in (x, self.scale, self.bias, y))
        extension.run(*addresses, ctypes.c_long(x.numel()), ctypes.c_long(self.scale.numel()))
        return y
