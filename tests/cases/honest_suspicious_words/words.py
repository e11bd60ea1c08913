"""Has the words pass, try, except, eval, exec and import os in its comments and docstrings.

Wrongly rejected elsewhere: graders that look for words.
"""

import torch
from torch import nn

# try: a forward pass without allocation first; pass the scale by value. Never eval or exec anything, no import os here.
# torch.cuda.synchronize and time.perf_counter are not called, the outputs are not cached, nothing is monkey-patched.


class ModelNew(nn.Module):
    """The forward pass: try to fuse scale, bias and ReLU. except: nothing."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        """One forward pass."""
        return torch.relu(x * self.scale + self.bias)
