"""A filter in the frequency domain: a complex parameter and a complex buffer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(features, dtype=torch.cfloat))
        self.register_buffer("turn", torch.polar(torch.ones(features), torch.arange(1, features + 1) / features))

    def forward(self, x):
        return torch.fft.ifft(torch.fft.fft(x) * self.filter * self.turn).real


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]
