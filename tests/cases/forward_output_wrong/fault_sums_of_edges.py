"""Adds up what the edges bring, without the division by their number."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, nodes, features):
        super().__init__()
        self.nodes = nodes
        self.linear = nn.Linear(features, features)

    def forward(self, x, source, target):
        sums = torch.zeros(x.shape, device=x.device).index_add(0, target, torch.relu(self.linear(x[source])))
        ones = torch.ones(target.shape, device=x.device)
        degree = torch.zeros(self.nodes, device=x.device).index_add(0, target, ones)
        return sums + x
