"""Norms over two rows, in train() and eval() alike: rounding decides most gradients in both."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scales = nn.ParameterList(1 + 0.1 * torch.rand(features) for _ in range(3))

    def forward(self, x):
        for scale in self.scales:
            x = x * scale
            x = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-7).sqrt()
        return x


def get_init_inputs():
    return [256]


def get_inputs():
    half = torch.randn(256).sign() * (1 + 0.1 * torch.rand(256))
    return [torch.stack([half, -half * (1 + 0.1 * torch.rand(256))])]
