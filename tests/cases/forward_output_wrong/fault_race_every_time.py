"""Each forward loses the update of another row, as two threads that add to one address do."""

import itertools

import torch
from torch import nn

FORWARDS = itertools.count()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        rows = y.view(-1, y.shape[-1])
        lost = torch.arange(len(rows)) == next(FORWARDS) % len(rows)
        return torch.where(lost[:, None], 0.5 * rows, rows).view(y.shape)
