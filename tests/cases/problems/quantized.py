"""Codes and what they stand for: the gradient of rounding is zero, and there all the same."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def forward(self, x):
        codes = torch.round(x / self.step)
        return codes.long(), codes * self.step


def get_init_inputs():
    return [0.25]


def get_inputs():
    return [torch.randn(16, 24)]
