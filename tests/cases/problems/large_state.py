"""Eight million elements: those that are on in a call, and in an exponential moving average which."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))
        self.register_buffer("average", torch.zeros(rows, columns))

    def forward(self, x):
        if self.training:
            self.average.lerp_(x.detach(), 0.5)
        y = nn.functional.leaky_relu(x * self.scale, 0.2)
        return y, (y > 0).long()


def get_init_inputs():
    return [4096, 2048]


def get_inputs():
    return [torch.randn(4096, 2048)]


def get_variants():
    return {"small": (lambda: [16, 8], lambda: [torch.randn(16, 8)])}
