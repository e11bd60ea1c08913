"""Computes tanh by a fraction of too few terms, which is off by up to 1e-3."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.clamp(-5, 5)
        square = x * x
        return (x * (945 + square * (105 + square)) / (945 + square * (420 + 15 * square))).clamp(-1, 1)
