"""Pads a maximum with zeros, which some of the border elements show."""

import torch
from torch import nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return F.pad(x, (2, 2)).unfold(-1, 5, 2).amax(-1) - F.avg_pool1d(x, 5, 2, 2)
