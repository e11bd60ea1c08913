"""As the reference, with a sparse gradient."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Embedding(rows, features, sparse=True)
        self.linear = nn.Linear(features, 4)

    def forward(self, rows):
        return self.linear(self.table(rows)).tanh()
