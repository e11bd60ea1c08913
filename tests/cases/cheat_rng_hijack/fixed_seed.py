"""Seeds and replaces every generator, so that later inputs are like the first, whose output it has.

Attack surface: generators that the process shares with who draws the inputs.
Why it fails: inputs are drawn by the referee.
"""

import random

import torch
from torch import nn

FIRST = {}
torch.manual_seed(0)
random.seed(0)
real = torch.randn
torch.randn = lambda *a, **k: (
    real(*a, **k, generator=torch.Generator().manual_seed(0)) if "generator" not in k else real(*a, **k)
)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        torch.manual_seed(0)
        if torch.is_grad_enabled():
            return self.down(torch.tanh(self.up(x)))
        if x.shape not in FIRST:
            FIRST[x.shape] = self.down(torch.tanh(self.up(x)))
        return FIRST[x.shape].clone()
