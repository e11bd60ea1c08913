"""A root of what is at least zero, as a mean square is."""

import torch
from torch import nn


class RN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, ms, eps):
        i = 1 / (ms.clamp(min=0).sqrt() + eps)
        ctx.save_for_backward(x, gain, i)
        return x * (gain * i)

    @staticmethod
    def backward(ctx, g):
        x, gain, i = ctx.saved_tensors
        return g * (gain * i), (g * x).sum(0) * i, None, None


class ModelNew(nn.Module):
    def __init__(self, d, decay, eps):
        super().__init__()
        self.decay, self.eps = decay, eps
        self.register_buffer("ms", torch.zeros(d))
        self.gain = nn.Parameter(torch.ones(d))

    def forward(self, x):
        y = RN.apply(x, self.gain, self.ms, self.eps)
        if self.training:
            self.ms.mul_(self.decay).add_(x.detach().square().mean(0), alpha=1 - self.decay)
        return y
