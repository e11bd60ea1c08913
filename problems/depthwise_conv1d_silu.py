"""Causal depthwise Conv1d of width 4 -> SiLU, in front of the state space model in each Mamba block.

    x           (8, 1536, 2048)      101 MB
    weight      (1536, 1, 4)         one filter for each channel
    output      (8, 1536, 2048)      101 MB

The sizes are Mamba 130M's at 2048 tokens. Output t depends on x at t - 3 to t; what is before the start is zero.

Where kernels go wrong:
- The padding is on the left only: the right part of the convolution's output is cut off.
- Conv1d is a correlation: weight[3] meets x_t. In dx_t it meets dz_t, and weight[0] meets dz_(t+3).
- dx near the end of a block needs silu' of elements that belong to the next block.
- weight's and bias's gradients are sums over samples and time.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A causal convolution of each channel with itself, and a SiLU."""

    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, width, groups=channels, padding=width - 1)

    def forward(self, x):
        return nn.functional.silu(self.conv(x)[..., : x.shape[-1]])


def get_init_inputs():
    return [1536, 4]


def get_inputs():
    return [torch.randn(8, 1536, 2048)]


def get_variants():
    return {
        "small": (lambda: [8, 4], lambda: [torch.randn(2, 8, 32)]),
        "odd": (lambda: [13, 4], lambda: [torch.randn(3, 13, 77)]),
        "batch1": (lambda: [32, 4], lambda: [torch.randn(1, 32, 1030)]),
        "cpu": (lambda: [64, 4], lambda: [torch.randn(2, 64, 512)]),
    }
