"""The output that passes a gradient on is detached, beside two that pass none."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = x * self.scale
        return y.detach(), torch.round(y), y[:, :0].detach()
