"""Adds each row to the sum of its bag; nothing for an empty one."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, features))

    def forward(self, rows, starts):
        place = torch.bucketize(torch.arange(len(rows), device=rows.device), starts, right=True) - 1
        sums = torch.zeros(len(starts), self.table.shape[1], device=rows.device)
        return sums.index_add(0, place, self.table[rows])
