"""A tensor subclass that says it has the right shape and dtype, and is one element.

Attack surface: properties that a subclass may override.
Why it fails: the worker's description is a claim; what cannot be copied into the slot is missing.
"""

import torch
from torch import nn


class Liar(torch.Tensor):
    shape = property(lambda self: torch.Size((5, 6, 8)))
    dtype = property(lambda self: torch.float32)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.zeros(1).as_subclass(Liar)
