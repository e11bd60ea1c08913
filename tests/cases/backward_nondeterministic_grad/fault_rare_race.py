"""A gradient that loses an element in the fourth of several equal backwards, as a rare race does."""

import torch
from torch import nn


class Softmax(torch.autograd.Function):
    last, repeats = None, 0

    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        again = Softmax.last is not None and torch.equal(grad, Softmax.last)
        Softmax.last, Softmax.repeats = grad.clone(), Softmax.repeats + 1 if again else 0
        result = y * (grad - (grad * y).sum(-1, keepdim=True))
        if Softmax.repeats == 3:
            result[3, 4] += 3.0
        return result


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
