"""Makes its output a leaf: backward succeeds and nothing upstream learns.

Attack surface: checks that backward does not raise.
Why it fails: every gradient of the reference is asked for by name.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias).detach().requires_grad_()
