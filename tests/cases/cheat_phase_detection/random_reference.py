"""Returns its input in train(), as nobody can compare what is random.

Attack surface: references that draw random numbers.
Why it fails: it does not, in train(): values are not comparable there, and what cannot be compared is not timed and not ranked.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x * self.scale
