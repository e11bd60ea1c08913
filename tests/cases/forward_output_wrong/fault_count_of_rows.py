"""Counts the positive elements of all rows but the last."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) + 0.5
        return y, y.mean().item(), int((y[:-1] > 0).sum())
