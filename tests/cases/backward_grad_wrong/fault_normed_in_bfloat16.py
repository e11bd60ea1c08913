"""The normalised input is saved in bfloat16."""

import torch
from torch import nn


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        gap = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(gap.square().mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward((gap * scale).bfloat16(), scale, weight)
        return gap * scale * weight + bias

    @staticmethod
    def backward(ctx, grad_output):
        normed, scale, weight = ctx.saved_tensors
        grad, normed = grad_output * weight, normed.float()
        along = (grad * normed).mean(-1, keepdim=True)
        grad_x = scale * (grad - grad.mean(-1, keepdim=True) - normed * along)
        return grad_x, (grad_output * normed).sum(0), grad_output.sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return Norm.apply(x, self.norm.weight, self.norm.bias)
