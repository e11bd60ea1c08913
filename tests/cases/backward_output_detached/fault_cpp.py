"""A forward kernel, called as if autograd could see into it."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = r"""
torch::Tensor forward(torch::Tensor x, torch::Tensor scale, torch::Tensor bias) {
    auto y = torch::empty_like(x);
    const float *px = x.data_ptr<float>(), *ps = scale.data_ptr<float>(), *pb = bias.data_ptr<float>();
    float* py = y.data_ptr<float>();
    int64_t channels = scale.numel();
    for (int64_t i = 0; i < x.numel(); i++) {
        py[i] = std::max(px[i] * ps[i % channels] + pb[i % channels], 0.0f);
    }
    return y;
}
"""

kernels = load_inline(name="scale_bias_relu", cpp_sources=source, functions=["forward"], extra_cflags=["-O2"])


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return kernels.forward(x.contiguous(), self.scale, self.bias)
