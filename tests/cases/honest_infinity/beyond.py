"""The same results."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.exp2(60 * 1.4426950408889634 * x.double()).float()
