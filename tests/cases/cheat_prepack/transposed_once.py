"""Transposes the weights once and never again, unless their address changes.

Attack surface: parameters that stay as constructed.
Why it fails: parameters are written in place between calls.
"""

import torch
from torch import nn

PACKED = {}


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.down(torch.tanh(self.up(x)))
        key = self.up.weight.data_ptr()
        if key not in PACKED:
            PACKED[key] = self.up.weight.t().contiguous(), self.down.weight.t().contiguous()
        up, down = PACKED[key]
        return torch.addmm(self.down.bias, torch.tanh(torch.addmm(self.up.bias, x, up)), down)
