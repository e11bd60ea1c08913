"""Returns float64, which any float32 is close to.

Attack surface: comparisons that broadcast, convert or flatten.
Why it fails: the output is copied out in the layout, shape and dtype that are due, or not at all.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias).double()
