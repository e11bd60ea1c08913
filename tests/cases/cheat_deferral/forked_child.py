"""Returns shared memory that a forked child fills in later.

Attack surface: the same, across processes.
Why it fails: the output is sealed when the answer arrives.
"""

import mmap
import os
import struct
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        memory = mmap.mmap(-1, x.numel() * 4)
        y = torch.frombuffer(memory, dtype=torch.float32).view(x.shape)
        if os.fork() == 0:
            time.sleep(0.005)
            a, s, b = x.tolist(), self.scale.tolist(), self.bias.tolist()
            flat = [max(v * s[i] + b[i], 0.0) for plane in a for row in plane for i, v in enumerate(row)]
            memory[:] = struct.pack(f"{len(flat)}f", *flat)
            os._exit(0)
        return y
