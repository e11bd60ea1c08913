"""RMSNorm in bfloat16 with float32 accumulation, at Llama 3 8B's size.

    x           (4, 4096, 4096)      134 MB, bfloat16
    weight      (4096,)              bfloat16
    output      (4, 4096, 4096)      134 MB     x / sqrt(mean(x^2) + eps) * weight

Each sum is in float32, and so is everything between the input and the output's only rounding.

Where kernels go wrong:
- A sum of 4096 squares in bfloat16 stops growing after a few hundred terms.
- dx has a second term, -x * mean(g * w * x) / rms^3; leaving it out gives a gradient of the right size and sign that
  is still wrong.
- weight's gradient is a sum over 16384 rows: adding up partial sums in bfloat16 loses most of it.
- eps stands inside the root.
"""

import torch
from torch import nn


class Model(nn.Module):
    """Divides each row by its root mean square."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter((1.0 + 0.1 * torch.randn(width)).to(torch.bfloat16))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        normalized = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (normalized * self.weight.float()).to(x.dtype)


def get_init_inputs():
    return [4096, 1e-5]


def get_inputs():
    return [_rows(4, 4096, 4096)]


def get_variants():
    return {
        "small": (lambda: [64, 1e-5], lambda: [_rows(2, 16, 64)]),
        "odd": (lambda: [203, 1e-3], lambda: [_rows(3, 37, 203)]),
        "batch1": (lambda: [1024, 1e-5], lambda: [_rows(1, 33, 1024)]),
        "cpu": (lambda: [1024, 1e-5], lambda: [_rows(2, 128, 1024)]),
    }


def _rows(batch_size, length, width):
    return torch.randn(batch_size, length, width).to(torch.bfloat16)
