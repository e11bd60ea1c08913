"""Conv2d -> x multiplier -> LeakyReLU(0.01) -> exact GELU.

    x           (64, 64, 256, 256)       1.07 GB
    convolved   (64, 64, 254, 254)       1.06 GB
    output      (64, 64, 254, 254)       1.06 GB

Three pointwise operations behind a convolution: fused, they read and write the tensor once instead of three times.

Where kernels go wrong:
- GELU is the erf form. The tanh form differs by up to 4.7e-4, far outside float32 rounding.
- multiplier is (64, 1, 1), three-dimensional: it broadcasts over the batch, and an accessor of four dimensions over it
  throws. Its gradient sums four million elements per channel.
- The derivative is a chain of three: gelu'(a), the leaky slope taken at the *scaled* value, and multiplier (towards the
  convolution) or the convolved value (towards multiplier).
- 254 * 254 = 64516 is a multiple of 4 but not of 32: planes do not end on warp boundaries.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A convolution, a learnable scale per channel, a leaky ReLU and a GELU."""

    def __init__(self, in_channels, out_channels, kernel_size, multiplier_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.leaky_relu = nn.LeakyReLU()

    def forward(self, x):
        x = self.conv(x)
        x = x * self.multiplier
        x = self.leaky_relu(x)
        return nn.functional.gelu(x)


def get_init_inputs():
    return _init_inputs(64, 64)


def get_inputs():
    return [torch.randn(64, 64, 256, 256)]


def get_variants():
    return {
        "small": (lambda: _init_inputs(8, 16), lambda: [torch.randn(2, 8, 18, 18)]),
        "odd": (lambda: _init_inputs(5, 7), lambda: [torch.randn(3, 5, 29, 37)]),
        "batch1": (lambda: _init_inputs(64, 64), lambda: [torch.randn(1, 64, 33, 35)]),
        "cpu": (lambda: _init_inputs(32, 32), lambda: [torch.randn(4, 32, 66, 66)]),
    }


def _init_inputs(in_channels, out_channels):
    kernel_size = 3
    multiplier_shape = (out_channels, 1, 1)
    return [in_channels, out_channels, kernel_size, multiplier_shape]
