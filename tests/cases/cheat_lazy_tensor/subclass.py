"""Returns a subclass that computes when somebody copies it, 20 ms later than the clock in this process stops.

Attack surface: clocks that stop when forward returns.
Why it fails: an output is of the reference's type, which no subclass is unless it returns one too.
"""

import time

import torch
from torch import nn


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if function is torch.Tensor.detach and hasattr(args[0], "compute"):
                return args[0].compute()
            return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)

        def compute():
            time.sleep(0.02)
            return torch.relu(x * self.scale + self.bias)

        y = x.new_empty(x.shape).as_subclass(Later)
        y.compute = compute
        return y
