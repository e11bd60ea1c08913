"""Scales a spectrum by complex weights and by a complex buffer, which another seed makes otherwise."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features, dtype=torch.complex64))
        self.register_buffer("shift", torch.exp(1j * torch.rand(features)))

    def forward(self, x):
        return torch.view_as_real(torch.fft.fft(x) * self.shift @ self.weight)


def get_init_inputs():
    return [12]


def get_inputs():
    return [torch.randn(7, 12)]
