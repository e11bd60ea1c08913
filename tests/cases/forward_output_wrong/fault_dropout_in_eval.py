"""Calls functional.dropout without `training`, which is True unless it is given."""

from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return self.linear(functional.dropout(x, 0.2))
