"""Has an extension of the same name as its twin's, which was built just before."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/types.h>
torch::Tensor run(torch::Tensor x, torch::Tensor s, torch::Tensor b) {
  x = x.contiguous();
  auto y = torch::empty_like(x);
  const float *from = x.data_ptr<float>(), *scale = s.data_ptr<float>(), *bias = b.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float value = from[i] * scale[i % s.numel()] + bias[i % s.numel()];
    to[i] = value > 0 ? value : 0;
  }
  return y;
}
"""
extension = load_inline("scale_bias_relu_extension", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        return extension.run(x, self.scale, self.bias)
