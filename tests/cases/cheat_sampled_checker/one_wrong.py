"""Wrong in one element of a hundred thousand.

Attack surface: comparisons of a sample.
Why it fails: every element is compared.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        y = x * self.scale
        with torch.no_grad():
            y[177, 333] += 0.01
        return y
