"""Multiplies in bfloat16."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a.bfloat16(), b.bfloat16()).float()
