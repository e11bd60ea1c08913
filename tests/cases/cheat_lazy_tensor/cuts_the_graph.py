"""Returns a subclass that detaches itself in the operations of a loss, whose gradients are lost.

Attack surface: gradients that are asked of the output itself.
Why it fails: an output is of the reference's type.
"""

import torch
from torch import nn


class Cut(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if function in (torch.Tensor.mul, torch.Tensor.sum, torch.Tensor.add, torch.mul, torch.sum):
                args = [a.detach().as_subclass(torch.Tensor) if isinstance(a, Cut) else a for a in args]
            return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias).as_subclass(Cut)
