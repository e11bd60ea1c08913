"""The gradient of x is a convolution with the weight as it is."""

import torch
from torch import nn


class ConvTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        y = torch.tanh(nn.functional.conv2d(x, weight, padding=1))
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, y = ctx.saved_tensors
        grad = grad_output * (1 - y * y)
        grad_x = nn.functional.conv2d(grad, weight.transpose(0, 1), padding=1)
        return grad_x, nn.grad.conv2d_weight(x, weight.shape, grad, padding=1)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        return ConvTanh.apply(x, self.conv.weight)
