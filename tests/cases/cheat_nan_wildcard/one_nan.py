"""Is right but for one NaN among a hundred thousand elements, in an output that it could not be bothered to compute.

Attack surface: norms from which non-finite elements are left out.
Why it fails: NaN has to stand where the reference has it.
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
            y[17, 23] = float("nan")
        return y
