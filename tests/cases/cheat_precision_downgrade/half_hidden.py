"""Keeps only the hidden activations in float16; the output is float32 and off by 1e-4.

Attack surface: fixed tolerances of 1e-2.
Why it fails: the bound follows from what float32 itself loses.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        hidden = torch.tanh(self.up(x)).half().float()
        return self.down(hidden)
