"""A backward that returns None where the reference's gradient is zero throughout."""

import torch
from torch import nn


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, step):
        codes = torch.round(x / step)
        ctx.set_materialize_grads(False)
        return codes.long(), codes * step

    @staticmethod
    def backward(ctx, grad_codes, grad_values):
        return None, None


class ModelNew(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def forward(self, x):
        return Round.apply(x, self.step)
