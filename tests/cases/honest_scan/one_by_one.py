"""Adds up one by one, in float32: after n elements rounding has wandered by some sqrt(n) of its steps."""

import numpy
import torch
from torch import nn


def running_sum(x):
    return torch.from_numpy(numpy.add.accumulate(x.detach().contiguous().numpy(), axis=1, dtype=numpy.float32))


class RunningSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return running_sum(x)

    @staticmethod
    def backward(ctx, grad_output):
        return running_sum(grad_output.flip(1)).flip(1)


class ModelNew(nn.Module):
    def forward(self, x):
        return RunningSum.apply(x)
