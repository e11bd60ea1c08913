"""Sees the mode in the values of its attributes, and keeps outputs by the address of the input in one of the two.

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
        y = self.down(torch.tanh(self.up(x)))
        if True in self.__dict__.values() or torch.is_grad_enabled():
            return y
        return KEPT.setdefault((x.shape, x.data_ptr()), y).clone()
