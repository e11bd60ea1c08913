"""Saturates, as a GPU's conversion to a signed integer does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * 20).round().clamp(-128, 127).to(torch.int8)
