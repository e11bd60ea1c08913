"""The maximum of each row whose quarters are scaled, as torch.amax gives it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(parts) + 0.5)

    def forward(self, x):
        return (x.view(-1, 4, 8) * self.scale[:, None]).amax((1, 2))


def get_inputs():
    return [torch.randn(24, 32)]


def get_init_inputs():
    return [4]
