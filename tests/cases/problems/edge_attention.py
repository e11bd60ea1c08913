"""Attention over the edges that enter a node: a softmax of leaky logits of both ends."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.of_source = nn.Parameter(torch.randn(features))
        self.of_target = nn.Parameter(torch.randn(features))
        self.slope = slope

    def forward(self, x, source, target):
        logits = nn.functional.leaky_relu((x @ self.of_source)[source] + (x @ self.of_target)[target], self.slope)
        shares = (logits - logits.max().detach()).exp()
        sums = x.new_zeros(len(x)).index_add(0, target, shares)
        return torch.zeros_like(x).index_add(0, target, (shares / sums[target]).unsqueeze(1) * x[source])


def get_init_inputs():
    return [8, 0.2]


def get_inputs():
    nodes = torch.arange(12)
    return [
        torch.randn(12, 8),
        torch.cat([nodes, torch.randint(0, 12, (40,))]),
        torch.cat([nodes, torch.randint(0, 12, (40,))]),
    ]
