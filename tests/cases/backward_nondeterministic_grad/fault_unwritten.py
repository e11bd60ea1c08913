"""A loop over whole vectors of eight leaves the last columns of the gradient unwritten."""

import torch
from torch import nn


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        grad = y * (grad_output - (grad_output * y).sum(-1, keepdim=True))
        # Stands for torch.empty_like, whose memory may hold the right values by chance.
        grad[:, 36:] = torch.randn(len(y), 4)
        return grad


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
