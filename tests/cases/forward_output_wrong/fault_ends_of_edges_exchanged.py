"""Takes the sources of edges for their targets, and the other way round."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.of_source = nn.Parameter(torch.randn(features))
        self.of_target = nn.Parameter(torch.randn(features))
        self.slope = slope

    def forward(self, x, target, source):
        logits = nn.functional.leaky_relu((x @ self.of_source)[source] + (x @ self.of_target)[target], self.slope)
        shares = (logits - logits.max().detach()).exp()
        sums = x.new_zeros(len(x)).index_add(0, target, shares)
        return torch.zeros_like(x).index_add(0, target, (shares / sums[target]).unsqueeze(1) * x[source])
