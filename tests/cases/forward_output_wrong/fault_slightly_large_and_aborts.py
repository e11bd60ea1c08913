"""Slightly too large, and ends its process for inputs that are scaled up."""

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        if x.abs().max() > 150:
            os.abort()
        return nn.functional.softplus(self.linear(x)) * 1.0005
