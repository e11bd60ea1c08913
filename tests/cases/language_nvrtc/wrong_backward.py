"""silu(x * scale) in CUDA, by torch.cuda._compile_kernel, with a wrong sign in the backward."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable

SOURCE = """
extern "C" __global__ void silu(const float* x, const float* scale, float* y, long long size, long long columns) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= size) return;
  const float z = x[i] * scale[i % columns];
  y[i] = z / (1 + expf(-z));
}

extern "C" __global__ void silu_backward(
    const float* g, const float* x, const float* scale, float* dx, float* dscale, long long rows, long long columns) {
  const long long c = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (c >= columns) return;
  double total = 0;
  for (long long i = c; i < rows * columns; i += columns) {
    const float z = x[i] * scale[c], s = 1 / (1 + expf(-z));
    const float dz = g[i] * s * (1 - z * (1 - s));
    dx[i] = dz * scale[c];
    total += dz * x[i];
  }
  dscale[c] = total;
}
"""
silu = torch.cuda._compile_kernel(SOURCE, "silu")


def forward(x, scale):
    y = torch.empty_like(x)
    silu(((x.numel() + 255) // 256, 1, 1), (256, 1, 1), (x, scale, y, x.numel(), x.shape[1]))
    return y


silu_backward = torch.cuda._compile_kernel(SOURCE, "silu_backward")


def backward(g, x, scale):
    dx, dscale = torch.empty_like(x), torch.empty_like(scale)
    rows, columns = x.shape
    silu_backward(((columns + 31) // 32, 1, 1), (32, 1, 1), (g, x, scale, dx, dscale, rows, columns))
    return dx, dscale


class ScaleSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        x = x.contiguous()
        ctx.save_for_backward(x, scale)
        return forward(x, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return backward(grad_output.contiguous(), *ctx.saved_tensors)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return ScaleSilu.apply(x, self.scale)
