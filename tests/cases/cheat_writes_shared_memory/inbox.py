"""Makes the shared memory that its inputs come in writable and zeroes it, so that whoever else reads it computes with zeros; then returns what zeros would give.

Attack surface: mprotect, /proc/self/mem and new mappings of the inbox.
Why it fails: the descriptor is sealed against new writable mappings, and nobody computes with that memory but the candidate.
"""

import ctypes

import torch
from torch import nn


def overwrite():
    for line in open("/proc/self/maps"):
        if "memfd:grader" in line:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 3)
            try:
                with open("/proc/self/mem", "r+b", buffering=0) as memory:
                    memory.seek(start)
                    memory.write(bytes(min(end - start, 4096)))
            except OSError:
                pass


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        overwrite()
        return torch.relu(x * 0 * self.scale + self.bias)
