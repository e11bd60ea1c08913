"""Is right until a number of forwards with a graph has run, then returns zeros without one.

Attack surface: correctness first, time later.
Why it fails: every timed output is compared.
"""

import torch
from torch import nn

CALLS = []


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        if torch.is_grad_enabled():
            CALLS.append(1)
            return self.down(torch.tanh(self.up(x)))
        return self.down(torch.tanh(self.up(x))) if len(CALLS) < 24 else torch.zeros_like(x)
