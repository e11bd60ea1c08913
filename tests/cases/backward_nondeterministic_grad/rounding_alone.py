"""Sums in another order each time what adds up to zero: from run to run all of it changes, and none of it matters."""

import random

import torch
from torch import nn


class AddBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad_output):
        total = torch.zeros_like(grad_output[0])
        for row in random.sample(list(grad_output), k=len(grad_output)):
            total += row
        return grad_output, total


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels))
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return torch.relu(self.norm(AddBias.apply(x, self.bias)))
