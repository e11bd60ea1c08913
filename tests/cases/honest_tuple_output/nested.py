"""Returns a nested tuple.

Wrongly rejected elsewhere: graders that call .shape on whatever comes back.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = self.scale * x
        return y, (x @ self.scale, y.amax(dim=1))
