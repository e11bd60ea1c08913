"""A Function whose second output requires a gradient and passes none on."""

import torch
from torch import nn


class Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mean = x.mean(-1)
        y = torch.relu(x - mean[:, None])
        ctx.save_for_backward(y)
        return y, mean

    @staticmethod
    def backward(ctx, grad, _):
        (y,) = ctx.saved_tensors
        grad = grad * (y > 0)
        return grad - grad.mean(-1, keepdim=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return Residual.apply(x)
