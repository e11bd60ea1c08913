"""Zeros everywhere: the branch for the flag is missing."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, flag):
        return x * 0
