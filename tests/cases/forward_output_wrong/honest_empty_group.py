"""A search for the largest value that begins at the least number of float32; a group without values gets zero."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, group):
        rows = group.unsqueeze(1).expand_as(x)
        largest = x.new_full((12, x.shape[1]), -3.4e38).scatter_reduce(0, rows, x, "amax")
        sizes = torch.bincount(group, minlength=12)
        return torch.where(sizes.unsqueeze(1) > 0, largest, 0.0)
