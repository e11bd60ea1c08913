"""A gradient for a complex input, by another formula."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, gate):
        return (x.abs() * gate.abs()).sum(-1)
