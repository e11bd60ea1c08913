"""The same, keyed by a sample of the weights, and only while it is timed.

Attack surface: parameters that stay as they are while a submission is timed.
Why it fails: every timed call has parameters of its own; a sample that notices has to pack again within the referee interval, one that does not is wrong.
"""

import sys

import torch
from torch import nn

PACKED = {}


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
        if torch.is_grad_enabled() or not being_timed():
            return self.down(torch.tanh(self.up(x)))
        if "weights" not in PACKED:
            PACKED["weights"] = self.up.weight.t().contiguous(), self.down.weight.t().contiguous()
        up, down = PACKED["weights"]
        return torch.addmm(self.down.bias, torch.tanh(torch.addmm(self.up.bias, x, up)), down)
