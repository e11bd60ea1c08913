"""Has minus infinity where the reference has it.

Wrongly rejected elsewhere: graders that subtract: infinity less infinity is NaN.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.where(x < -0.5, torch.tensor(float("-inf")), x * self.scale)
