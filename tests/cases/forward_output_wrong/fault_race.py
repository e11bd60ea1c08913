"""One element differs in every third forward, as a race may leave it."""

import itertools

import torch
from torch import nn

FORWARDS = itertools.count()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        if next(FORWARDS) % 3 == 0:
            y = y + 0.1 * (torch.arange(y.numel()) == 17).view(y.shape)
        return y
