"""silu(x * scale) in Numba, forward and backward."""

import math

import numba
import torch
from numba import cuda
from torch import nn
from torch.autograd.function import once_differentiable


@cuda.jit
def silu(xs, scales, ys):
    i = cuda.grid(1)
    if i < ys.size:
        z = xs[i] * scales[i % scales.size]
        ys[i] = z / (numba.float32(1) + math.exp(-z))


def forward(x, scale):
    y = torch.empty_like(x)
    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    flat = [cuda.as_cuda_array(value.detach().view(-1), sync=False) for value in (x, scale, y)]
    silu[(x.numel() + 255) // 256, 256, stream](*flat)
    return y


@cuda.jit
def silu_backward(gs, xs, scales, dxs, dscales):
    c = cuda.grid(1)
    if c < scales.size:
        total = numba.float64(0)
        for r in range(xs.shape[0]):
            x, scale = xs[r, c], scales[c]
            z = x * scale
            s = numba.float32(1) / (numba.float32(1) + math.exp(-z))
            dz = gs[r, c] * s * (1 + z * (1 - s))
            dxs[r, c] = dz * scale
            total += dz * x
        dscales[c] = total


def backward(g, x, scale):
    dx, dscale = torch.empty_like(x), torch.empty_like(scale)
    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    arrays = [cuda.as_cuda_array(value.detach(), sync=False) for value in (g, x, scale, dx, dscale)]
    silu_backward[(x.shape[1] + 31) // 32, 32, stream](*arrays)
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
