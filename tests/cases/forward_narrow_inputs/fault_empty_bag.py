"""Repeats the bag before in place of an empty one."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, features))

    def forward(self, rows, starts):
        ends = [*starts[1:].tolist(), len(rows)]
        sums = [torch.zeros_like(self.table[0])]
        for start, end in zip(starts.tolist(), ends, strict=True):
            sums.append(self.table[rows[start:end]].sum(0) if end > start else sums[-1])
        return torch.stack(sums[1:])
