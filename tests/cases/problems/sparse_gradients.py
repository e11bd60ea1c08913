"""Rows of a table, whose gradient is sparse, in a linear layer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Embedding(rows, features, sparse=True)
        self.linear = nn.Linear(features, 4)

    def forward(self, rows):
        return self.linear(self.table(rows)).tanh()


def get_init_inputs():
    return [20, 8]


def get_inputs():
    return [torch.randint(20, (6, 12))]
