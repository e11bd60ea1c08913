"""What a missing __syncthreads() does to a sum over rows: which rows have arrived by then is different every time."""

import random

import torch
from torch import nn


class ScaleBiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        grad = (grad_output * (y > 0)).reshape(-1, x.shape[-1])
        rows = x.reshape(-1, x.shape[-1])
        arrived = torch.tensor([[float(random.SystemRandom().random() < 0.8)] for _ in rows], device=x.device)
        return (grad * scale).view_as(x), (grad * rows * arrived).sum(0), (grad * arrived).sum(0)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasReLU.apply(x, self.scale, self.bias)
