"""Small matrix products in a batch -> bias -> GELU, in bfloat16: the block-diagonal layer of M2-BERT base (Monarch
Mixer).

    x           (4, 16384, 192)      25 MB, bfloat16: 128 sequences of 128 tokens in four blocks
    weight      (4, 192, 768)        1.2 MB: each block is a layer of its own
    bias        (4, 1, 768)
    output      (4, 16384, 768)      101 MB

19 GFLOP forward: with so small an inner dimension, memory bounds a fused kernel, not arithmetic.

Where kernels go wrong:
- GELU is the exact one, with erf: the tanh approximation differs by up to 5e-4.
- gelu'(z) = Phi(z) + z phi(z); the second term is often lost.
- Each block has a bias of its own, whose gradient is a sum over 16384 rows: in bfloat16 such a sum stops growing
  after a few hundred terms.
- An inner dimension that is no multiple of the tile.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A block-diagonal linear layer and a GELU."""

    def __init__(self, blocks, inner, outer):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(blocks, inner, outer) / inner**0.5).to(torch.bfloat16))
        self.bias = nn.Parameter((0.1 * torch.randn(blocks, 1, outer)).to(torch.bfloat16))

    def forward(self, x):
        return nn.functional.gelu(torch.baddbmm(self.bias, x, self.weight))


def get_init_inputs():
    return [4, 192, 768]


def get_inputs():
    return [_rows(4, 16384, 192)]


def get_variants():
    return {
        "small": (lambda: [2, 16, 32], lambda: [_rows(2, 32, 16)]),
        "odd": (lambda: [3, 37, 53], lambda: [_rows(3, 77, 37)]),
        "batch1": (lambda: [1, 48, 192], lambda: [_rows(1, 130, 48)]),
        "cpu": (lambda: [4, 96, 192], lambda: [_rows(4, 256, 96)]),
    }


def _rows(blocks, rows, inner):
    return torch.randn(blocks, rows, inner).to(torch.bfloat16)
