"""Every other backward is twice as large: the first, in train(), and not the second, in eval()."""

import torch
from torch import nn


class Softmax(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        Softmax.calls += 1
        grad = y * (grad_output - (grad_output * y).sum(-1, keepdim=True))
        return 2 * grad if Softmax.calls % 2 else grad


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
