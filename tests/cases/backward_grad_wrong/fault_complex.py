"""The imaginary part of grad_output comes back with the wrong sign."""

import math

import torch
from torch import nn


def waves(samples):
    turns = torch.outer(torch.arange(samples), torch.arange(samples // 2 + 1)).remainder(samples).double()
    angles = 2 * math.pi * turns / samples
    return angles.cos().float(), -angles.sin().float()


class Spectrum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, window):
        ctx.save_for_backward(x, window)
        real, imaginary = waves(x.shape[-1])
        return torch.complex(x * window @ real, x * window @ imaginary)

    @staticmethod
    def backward(ctx, grad_output):
        x, window = ctx.saved_tensors
        real, imaginary = waves(x.shape[-1])
        grad = grad_output.real @ real.T - grad_output.imag @ imaginary.T
        return grad * window, (grad * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, samples):
        super().__init__()
        self.window = nn.Parameter(torch.rand(samples))

    def forward(self, x):
        return Spectrum.apply(x, self.window)
