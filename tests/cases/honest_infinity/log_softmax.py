"""The reference's own formula, which adds grad_outputs of infinite elements too."""

import torch
from torch import nn


class LogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, allowed):
        hidden = z.masked_fill(~allowed, -torch.inf)
        y = hidden - torch.logsumexp(hidden, -1, keepdim=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        grad = grad_output - y.exp() * grad_output.sum(-1, keepdim=True)
        return grad.masked_fill(y.isinf(), 0.0), None


class ModelNew(nn.Module):
    def __init__(self, choices):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(choices) + 0.5)

    def forward(self, x, allowed):
        return LogProbabilities.apply(x * self.scale, allowed)
