"""Largest numbers where the reference has infinity, and nothing right elsewhere: no tolerance is as large as they are."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x > 1.4787, float("inf"), 1.01 * torch.exp(60 * x))
