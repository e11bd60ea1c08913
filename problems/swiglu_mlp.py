"""Linear -> SwiGLU -> Linear with biases, in bfloat16: the feed-forward layer of DINOv2's ViT-g/14.

    x           (32, 257, 1536)      25 MB, bfloat16: 256 patches and a class token
    gate_up     (32, 257, 8192)      135 MB     x @ w12^T + b12, in halves: gate and up
    hidden      (32, 257, 4096)      67 MB      silu(gate) * up
    output      (32, 257, 1536)      25 MB      hidden @ w3^T + b3

Two matrix products forward and four backward: 310 GFLOP and 621 GFLOP. What can be fused is what lies between them.

Where kernels go wrong:
- silu belongs to the first half, and the gradient of one half needs the other.
- silu'(z) = s (1 + z (1 - s)) with s = sigmoid(z): s (1 - s) is the gradient of another function.
- The biases' gradients are sums over 8224 rows: in bfloat16 such a sum stops growing after a few hundred terms.
- 8224 rows are no multiple of 128.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self, width, hidden):
        super().__init__()
        self.w12 = nn.Linear(width, 2 * hidden, dtype=torch.bfloat16)
        self.w3 = nn.Linear(hidden, width, dtype=torch.bfloat16)

    def forward(self, x):
        gate, up = self.w12(x).chunk(2, dim=-1)
        return self.w3(nn.functional.silu(gate) * up)


def get_init_inputs():
    return [1536, 4096]


def get_inputs():
    return [_tokens(32, 257, 1536)]


def get_variants():
    return {
        "small": (lambda: [32, 64], lambda: [_tokens(2, 16, 32)]),
        "odd": (lambda: [37, 53], lambda: [_tokens(3, 11, 37)]),
        "batch1": (lambda: [64, 176], lambda: [_tokens(1, 33, 64)]),
        "cpu": (lambda: [256, 512], lambda: [_tokens(2, 128, 256)]),
    }


def _tokens(batch_size, length, width):
    return torch.randn(batch_size, length, width).to(torch.bfloat16)
