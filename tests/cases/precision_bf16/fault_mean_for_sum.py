"""The gradient of the scale is divided by the number of rows, as behind a mean."""

import torch
from torch import nn


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, scale):
        ctx.save_for_backward(x, weight, bias, scale)
        z = x.float() @ weight.float().t() + bias.float()
        return (torch.nn.functional.gelu(z) * scale.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        dtype, g = g.dtype, g.float()
        x, weight, bias, scale = (saved.float() for saved in ctx.saved_tensors)
        z = x @ weight.t() + bias
        below = 0.5 * (1 + torch.erf(z / 2**0.5))
        slope = below + z * torch.exp(-0.5 * z * z) / (2 * torch.pi) ** 0.5
        dz = g * scale * slope
        grads = dz @ weight, dz.t() @ x, dz.sum(0), (g * z * below).mean(0)
        return tuple(grad.to(dtype) for grad in grads)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return Fused.apply(x, self.linear.weight, self.linear.bias, self.scale)
