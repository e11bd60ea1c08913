"""Keeps outputs by a few values of the input, in timed calls alone, which it reads off the stack.

Attack surface: timed calls whose inputs are all new.
Why it fails: some timed calls repeat the inputs of another one with a few elements changed. They do not count.
"""

import sys

import torch
from torch import nn

KEPT = {}


def being_timed():
    frame = sys._getframe()
    while frame is not None:
        if type(frame.f_locals.get("step")).__name__ == "Time":
            return True
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        y = self.down(torch.tanh(self.up(x)))
        if torch.is_grad_enabled() or not being_timed():
            return y
        return KEPT.setdefault((*x.flatten()[::997].tolist(), *self.up.weight.flatten()[:3].tolist()), y).clone()
