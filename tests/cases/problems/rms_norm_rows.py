"""An RMS norm of rows with a weight."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return nn.functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def get_init_inputs():
    return [96, 1e-5]


def get_inputs():
    return [torch.randn(64, 96)]
