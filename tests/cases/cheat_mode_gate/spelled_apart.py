"""Keeps outputs by a few values of the input, in one of the two modes only, whose attribute it spells in two parts.

Attack surface: checks that run in both modes only if the source names them.
Why it fails: the probes of the forward run in both modes, whatever the source says.
"""

import torch
from torch import nn

KEPT = {}


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        if getattr(self, "tra" + "ining") or torch.is_grad_enabled():
            return self.down(torch.tanh(self.up(x)))
        key = x.shape, *x.flatten()[::97].tolist(), *self.up.weight.flatten()[::97].tolist()
        if key not in KEPT:
            KEPT[key] = self.down(torch.tanh(self.up(x)))
        return KEPT[key].clone()
