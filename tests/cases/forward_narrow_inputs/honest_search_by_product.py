"""Leaves out the vector's own square, which loses digits far from the codes, and takes the last of equal codes."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, codes, features):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes, features))

    def forward(self, x):
        distances = x.square().sum(-1, keepdim=True) - 2 * x @ self.codes.T + self.codes.square().sum(-1)
        return len(self.codes) - 1 - distances.flip(-1).argmin(-1)
