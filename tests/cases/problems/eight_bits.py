"""Quantizes to eight bits with a fixed scale and saturation, and keeps the signs as booleans."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.05))

    def forward(self, x):
        return (x / self.scale).round().clamp(-128, 127).to(torch.int8), x > 0


def get_inputs():
    return [torch.randn(16, 24)]
