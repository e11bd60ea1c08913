"""Keeps the normed values, as the output does not have them where a weight is zero."""

import torch
from torch import nn


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        var, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
        rstd = torch.rsqrt(var + eps)
        normed = (x - mean) * rstd
        out = normed * weight + bias
        ctx.save_for_backward(normed, rstd, weight)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        normed, rstd, weight = ctx.saved_tensors
        rows = grad_output.flatten(0, -2)
        grad = grad_output * weight
        centred = grad - grad.mean(-1, keepdim=True) - normed * (grad * normed).mean(-1, keepdim=True)
        return centred * rstd, (rows * normed.flatten(0, -2)).sum(0), rows.sum(0), None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return Norm.apply(x, self.norm.weight, self.norm.bias, self.norm.eps)
