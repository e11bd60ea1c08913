"""The forward runs again in the backward: what was frozen then must still be."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def _run(self, x):
        return self.down(torch.tanh(self.up(x)))

    def forward(self, x):
        return checkpoint(self._run, x, use_reentrant=False)
