"""silu(x * scale) by torch.compile, with a wrong sign in the backward."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


@torch.compile
def forward(x, scale):
    return nn.functional.silu(x * scale)


@torch.compile
def backward(g, x, scale):
    z = x * scale
    s = torch.sigmoid(z)
    dz = g * s * (1 - z * (1 - s))
    return dz * scale, (dz * x).sum(0)


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
