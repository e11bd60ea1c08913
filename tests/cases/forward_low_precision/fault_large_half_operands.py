"""Multiplies in float16 and adds in float32."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a.half().float(), b.half().float())
