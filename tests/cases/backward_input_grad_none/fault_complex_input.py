"""Gives its complex input no gradient."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, gate):
        return (x * gate.detach()).abs().sum(-1)
