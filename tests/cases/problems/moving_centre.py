"""A centre that is computed under no_grad(): it has no gradient, and the inputs have none through it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Parameter(torch.randn(8))
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x):
        with torch.no_grad():
            centre = torch.tanh(self.centre) + x.mean(0)
        return (x - centre) * self.scale


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(16, 8)]
