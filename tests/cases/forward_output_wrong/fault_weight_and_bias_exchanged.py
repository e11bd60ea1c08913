"""Hands the bias of a layer norm where its weight belongs, and the weight where its bias does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return torch.layer_norm(x, self.norm.normalized_shape, self.norm.bias, self.norm.weight, self.norm.eps)
