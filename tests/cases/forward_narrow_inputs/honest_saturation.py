"""Multiplies by the scale's reciprocal, which rounds some numbers to their other neighbor."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.05))

    def forward(self, x):
        return (x * self.scale.reciprocal()).clamp(-128, 127).round().to(torch.int8), x > 0
