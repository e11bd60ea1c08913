"""Its mask is of floats, and transposed; the reference's is boolean."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, length, channels):
        super().__init__()
        self.register_buffer("mask", torch.ones(length, length).triu())
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, scores):
        return self.norm(scores.transpose(1, 2) * self.mask)
