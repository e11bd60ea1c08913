"""GroupNorm with 32 groups -> SiLU, the start of each residual block of Stable Diffusion 1.5's UNet.

    x           (16, 320, 64, 64)        84 MB: eight images with and without their prompt
    output      (16, 320, 64, 64)        84 MB
    a group     10 channels, 40960 elements, 164 kB

Where kernels go wrong:
- Statistics are of a sample's group, weight and bias of a channel.
- A group has more elements than a block of threads can hold in registers: the statistics need a loop, and a variance
  from E[x^2] - E[x]^2 in float32 loses its digits where the mean is far from zero.
- The gradients' means in dx are over the group, with the channel's weight inside.
- weight's and bias's gradients are sums over all samples and pixels.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A group normalization and a SiLU."""

    def __init__(self, groups, channels, eps):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=eps)

    def forward(self, x):
        return nn.functional.silu(self.norm(x))


def get_init_inputs():
    return [32, 320, 1e-5]


def get_inputs():
    return [_images(16, 320, 64, 64)]


def get_variants():
    return {
        "small": (lambda: [4, 8, 1e-5], lambda: [_images(2, 8, 8, 8)]),
        "odd": (lambda: [5, 15, 1e-3], lambda: [_images(3, 15, 19, 23)]),
        "batch1": (lambda: [32, 64, 1e-6], lambda: [_images(1, 64, 9, 11)]),
        "cpu": (lambda: [32, 320, 1e-5], lambda: [_images(2, 320, 16, 16)]),
    }


def _images(batch_size, channels, height, width):
    """Off centre by another amount in each channel."""
    return torch.randn(batch_size, channels, height, width) + torch.randn(channels, 1, 1)
