"""silu(x * scale) in Triton, without a backward."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def silu(xs, scales, ys, size, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(xs + i, mask=i < size) * tl.load(scales + i % columns)
    tl.store(ys + i, z * tl.sigmoid(z), mask=i < size)


def forward(x, scale):
    y = torch.empty_like(x)
    silu[(triton.cdiv(x.numel(), 256),)](x, scale, y, x.numel(), x.shape[1], 256)
    return y


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return forward(x.contiguous(), self.scale)
