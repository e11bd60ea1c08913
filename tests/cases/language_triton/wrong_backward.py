"""silu(x * scale) in Triton, with a wrong sign in the backward."""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.autograd.function import once_differentiable


@triton.jit
def silu(xs, scales, ys, size, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(xs + i, mask=i < size) * tl.load(scales + i % columns)
    tl.store(ys + i, z * tl.sigmoid(z), mask=i < size)


def forward(x, scale):
    y = torch.empty_like(x)
    silu[(triton.cdiv(x.numel(), 256),)](x, scale, y, x.numel(), x.shape[1], 256)
    return y


@triton.jit
def silu_backward(gs, xs, scales, dxs, dscales, rows, columns, COLUMNS: tl.constexpr):
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = c < columns
    scale = tl.load(scales + c, mask=inside, other=0.0)
    total = tl.zeros((COLUMNS,), tl.float64)
    for r in range(rows):
        g = tl.load(gs + r * columns + c, mask=inside, other=0.0)
        x = tl.load(xs + r * columns + c, mask=inside, other=0.0)
        z = x * scale
        s = tl.sigmoid(z)
        dz = g * s * (1 - z * (1 - s))
        tl.store(dxs + r * columns + c, dz * scale, mask=inside)
        total += (dz * x).to(tl.float64)
    tl.store(dscales + c, total.to(tl.float32), mask=inside)


def backward(g, x, scale):
    dx, dscale = torch.empty_like(x), torch.empty_like(scale)
    rows, columns = x.shape
    silu_backward[(triton.cdiv(columns, 32),)](g, x, scale, dx, dscale, rows, columns, 32)
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
