"""silu(x * scale) in CUDA, by torch.cuda._compile_kernel, without a backward."""

import torch
from torch import nn

SOURCE = """
extern "C" __global__ void silu(const float* x, const float* scale, float* y, long long size, long long columns) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= size) return;
  const float z = x[i] * scale[i % columns];
  y[i] = z / (1 + expf(-z));
}
"""
silu = torch.cuda._compile_kernel(SOURCE, "silu")


def forward(x, scale):
    y = torch.empty_like(x)
    silu(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), (x, scale, y, x.numel(), x.shape[1]))
    return y


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return forward(x.contiguous(), self.scale)
