"""The backward subtracts the centre as it was before its update."""

import torch
from torch import nn


class Centred(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, centre, of_backward, scale, factor):
        ctx.save_for_backward(x, of_backward, scale)
        ctx.factor = factor
        return (x - centre) * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, centre, scale = ctx.saved_tensors
        return grad_output * scale * ctx.factor, None, None, (grad_output * (x - centre)).sum(0), None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.register_buffer("centre", torch.randn(features))

    def forward(self, x):
        before = self.centre.clone()
        if self.training:
            self.centre.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return Centred.apply(x, self.centre.clone(), before, self.scale, 1)
