"""Batch normalisation over a batch of two: in train(), rounding decides the gradients behind it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scales = nn.ParameterList(1 + 0.1 * torch.rand(features) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(features, eps=1e-7, affine=False) for _ in range(3))

    def forward(self, x):
        for scale, norm in zip(self.scales, self.norms):
            x = norm(x * scale)
        return x


def get_init_inputs():
    return [256]


def get_inputs():
    half = torch.randn(256).sign() * (1 + 0.1 * torch.rand(256))
    return [torch.stack([half, -half * (1 + 0.1 * torch.rand(256))])]
