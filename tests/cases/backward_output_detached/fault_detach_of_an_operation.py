"""It detaches x on the way, where no kernel is."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        return torch.tanh(x.detach() @ self.weight)
