"""It goes backwards through the row and divides by nothing."""

import torch
from torch import nn


class RunningProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.cumprod(x, 1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        last = x.shape[1] - 1
        grad_x = torch.empty_like(x)
        passed = grad_output[:, last]
        for at in range(last, -1, -1):
            if at < last:
                passed = grad_output[:, at] + x[:, at + 1] * passed
            grad_x[:, at] = passed * y[:, at - 1] if at else passed
        return grad_x


class ModelNew(nn.Module):
    def forward(self, x):
        return RunningProduct.apply(x)
