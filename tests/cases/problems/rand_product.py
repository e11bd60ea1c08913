"""A product of positive numbers, in whose sums of 4096 the rounding of operands nearly cancels."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(16, 4096), torch.rand(4096, 24)]
