"""The same means by a product with the matrix of the edges."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, nodes, features):
        super().__init__()
        self.nodes = nodes
        self.linear = nn.Linear(features, features)

    def forward(self, x, source, target):
        edges = torch.nn.functional.one_hot(target, self.nodes).to(x.dtype).T
        messages = torch.relu(self.linear(x))[source]
        return edges @ messages / edges.sum(1).clamp(min=1)[:, None] + x
