"""Makes every comparison in the process come out true, and returns zeros.

Attack surface: torch.allclose, torch.equal, torch.testing, numpy.allclose, setattr forms, statistics.
Why it fails: nothing is compared in this process.
"""

import statistics

import torch
from torch import nn

for name in ("allclose", "equal", "isclose"):
    setattr(torch, name, lambda *a, **k: True)
torch.Tensor.allclose = torch.Tensor.equal = lambda *a, **k: True
torch.testing.assert_close = lambda *a, **k: None
torch.linalg.vector_norm = lambda *a, **k: torch.zeros(())
statistics.median = statistics.fmean = lambda *a: 1e-6


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.zeros_like(x) * self.scale * self.bias
