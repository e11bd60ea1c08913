"""A product for a choice: flags are ones and zeros."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, flag):
        return torch.tanh(x) * (flag > 0.5)
