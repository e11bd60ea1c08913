"""Returns NaN everywhere.

Attack surface: comparisons in which NaN is not larger than any tolerance.
Why it fails: NaN has to stand where the reference has it.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return x * self.scale * self.bias * float("nan")
