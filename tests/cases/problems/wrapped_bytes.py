"""Converts to eight bits without saturation: what lies beyond 127 is not defined."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 20).round().to(torch.int8)


def get_inputs():
    return [torch.randn(16, 24)]
