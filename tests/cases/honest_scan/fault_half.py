"""The sums are kept in half precision."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1).half().float()
