"""Sleeps in its first calls, so that a harness that sizes its loop by them takes few samples.

Attack surface: iteration counts that follow the warm-up.
Why it fails: the count follows the reference's time.
"""

import time

import torch
from torch import nn

CALLS = []


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        CALLS.append(1)
        if len(CALLS) < 12:
            time.sleep(0.02)
        return torch.relu(x * self.scale + self.bias)
