"""Pools overlapping windows of a view."""

import torch
from torch import nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        m = F.pad(x, (2, 2), value=float("-inf")).unfold(-1, 5, 2).amax(-1)
        return m - F.pad(x, (2, 2)).unfold(-1, 5, 2).sum(-1) / 5
