"""Leaves by SystemExit at import.

Attack surface: the interpreter's exit.
Why it fails: whatever a step raises is evidence of a failed step.
"""

import torch
from torch import nn

print("correct")
raise SystemExit(0)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias)
