"""Adds sixteen products of parts."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return sum(torch.bmm(a[..., i::16], b[:, i::16]) for i in range(16))
