"""Its mask leaves the diagonal out."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, length, channels):
        super().__init__()
        self.register_buffer("mask", torch.ones(length, length).tril(-1) > 0)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, scores):
        return self.norm((scores * self.mask).transpose(1, 2))
