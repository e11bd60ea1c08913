"""Remembers outputs by all of the input and the parameters: right, and free wherever a problem draws the same input twice.

Attack surface: problems whose makers are deterministic.
Why it fails: timed calls get inputs and parameters of their own: noise is added to what a problem always draws alike. The memo misses each time.
"""

import time

import torch
from torch import nn

MEMO = []


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.tanh(x * self.scale)
        for seen, scale, y in MEMO:
            if torch.equal(seen, x) and torch.equal(scale, self.scale):
                return y.clone()
        time.sleep(0.02)
        y = torch.tanh(x * self.scale)
        MEMO[:] = [*MEMO[-1:], (x.clone(), self.scale.clone(), y.clone())]
        return y
