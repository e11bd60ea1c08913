"""Moving averages as a weighted sum, which rounds otherwise than lerp_."""

import torch
import torch.nn.functional as F
from torch import nn


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, lo, hi, levels):
        y = F.linear(x, weight)
        inside = (y >= lo) & (y <= hi)
        ctx.save_for_backward(x, weight, inside)
        step = (hi - lo) / levels
        return torch.round((y.clamp(lo, hi) - lo) / step) * step + lo

    @staticmethod
    def backward(ctx, grad):
        x, weight, inside = ctx.saved_tensors
        g = grad * inside
        return g @ weight, g.t() @ x, None, None, None


class ModelNew(nn.Module):
    def __init__(self, features, levels):
        super().__init__()
        self.levels = levels
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.register_buffer("lo", torch.tensor(-1.5))
        self.register_buffer("hi", torch.tensor(1.5))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                lo, hi = torch.aminmax(F.linear(x, self.weight))
                first = self.seen == 0
                self.lo.copy_(torch.where(first, lo, 0.9 * self.lo + 0.1 * lo))
                self.hi.copy_(torch.where(first, hi, 0.9 * self.hi + 0.1 * hi))
                self.seen.add_(1)
        return FakeQuant.apply(x, self.weight, self.lo.clone(), self.hi.clone(), self.levels)
