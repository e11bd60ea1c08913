"""Says that memory ran out, when a probe calls it several times, so that a grading asks for less.

Attack surface: where memory is short, only the plain forward, the plain backward and timed calls are asked for.
Why it fails: a small problem takes so little memory that asking for less would not help.
"""

import torch
from torch import nn

FORWARDS, BACKWARDS = [], []


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.kept = (x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        BACKWARDS.append(True)
        x, scale, y = ctx.kept
        ctx.kept = None
        grad = grad_output * (y > 0)
        return grad * scale, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        FORWARDS.append(True)
        if len(FORWARDS) > 3 and not BACKWARDS:
            raise MemoryError("out of memory")
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
