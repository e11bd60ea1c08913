"""Leaves dropout out, as nobody can compare what is random.

Attack surface: references that draw random numbers.
Why it fails: the outputs do not change from seed to seed as the reference's do.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x * self.scale
