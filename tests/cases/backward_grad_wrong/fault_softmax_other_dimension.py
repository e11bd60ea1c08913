"""Its softmax sums over the rows in the backward, and over the columns in the forward."""

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
        product = grad_output * y
        return product - y * product.sum(0, keepdim=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
