"""The same on a kernel so short that a careless tolerance on the clocks would cover all of it: 0.8 ms for 0.3 ms.

Attack surface: grader.worker.timing.clock.
Why it fails: where the referee's clock sees more than the claim, its figure is given; there is no allowance in milliseconds.
"""

import sys
import time

import torch
from torch import nn

sys.modules["grader.worker.timing.clock"].perf_counter = lambda: 0.0


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        time.sleep(0.0008)
        return torch.relu(x * self.scale + self.bias)
