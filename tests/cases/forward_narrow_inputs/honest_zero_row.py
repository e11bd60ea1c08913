"""Divides by the norm, or by the epsilon if that is larger."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)
