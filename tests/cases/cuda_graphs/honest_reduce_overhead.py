"""torch.compile with CUDA graphs, whose output and gradients are copied out of the graphs' memory."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


@torch.compile(mode="reduce-overhead")
def forward(x, scale):
    return nn.functional.silu(x * scale)


@torch.compile(mode="reduce-overhead")
def backward(g, x, scale):
    z = x * scale
    s = torch.sigmoid(z)
    dz = g * s * (1 + z * (1 - s))
    return dz * scale, (dz * x).sum(0)


class ScaleSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return forward(x, scale).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return tuple(gradient.clone() for gradient in backward(grad_output, *ctx.saved_tensors))


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return ScaleSilu.apply(x, self.scale)
