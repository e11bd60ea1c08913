"""Takes over the control socket and answers every job itself: all done, no time taken, every tensor as asked for.

Attack surface: descriptor 3, the frames of the worker's main loop.
Why it fails: the answer carries no verdict. The outbox, sealed when the answer begins, still holds the referee's poison.
"""

import torch
from torch import nn

from grader import protocol as p
from grader.worker.registry import HANDLERS

HANDLERS[p.Export] = lambda session, step: p.Exported()
HANDLERS[p.Time] = lambda session, step: p.Timed(ms=0.001)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias)
