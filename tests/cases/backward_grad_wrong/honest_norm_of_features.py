"""All statistics along the last dimension."""

import torch
from torch import nn


def normed(x, dim):
    centred = x - x.mean(dim, keepdim=True)
    inverse = torch.rsqrt(centred.square().mean(dim, keepdim=True) + 1e-5)
    return centred * inverse, inverse


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return normed(x, 2)[0] * weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        value, inverse = normed(x, 2)
        grad = grad_output * weight
        mean, along = (of.mean(2, keepdim=True) for of in (grad, grad * value))
        return (grad - mean - value * along) * inverse, (grad_output * value).sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return Norm.apply(x, self.weight)
