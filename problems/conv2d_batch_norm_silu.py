"""Conv2d (no bias) -> BatchNorm2d -> SiLU: the standard block of a detection network.

    x           (32, 32, 128, 128)       67 MB
    convolved   (32, 64, 128, 128)       134 MB
    output      (32, 64, 128, 128)       134 MB

The normalisation behaves differently in the two modes and writes to the model's buffers in one of them.

Where kernels go wrong:
- train(): statistics of the batch, which gradients flow through; running_mean and running_var move by `momentum` (0.03
  here, not PyTorch's default), with the *unbiased* variance, and num_batches_tracked counts up.
- eval(): the running statistics, as constants, so that the backward loses two of its terms; no buffer changes.
- eps is 1e-3 here, a hundred times the default.
- The convolved values may sit far from zero: a variance from E[x^2] - E[x]^2 in float32 loses its digits.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A convolution, a batch normalisation and a SiLU."""

    def __init__(self, in_channels, out_channels, kernel_size, eps, momentum):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, eps=eps, momentum=momentum)

    def forward(self, x):
        return nn.functional.silu(self.bn(self.conv(x)))


def get_init_inputs():
    return [32, 64, 3, 1e-3, 0.03]


def get_inputs():
    return [_images(32, 32, 128, 128)]


def get_variants():
    return {
        "small": (lambda: [4, 8, 3, 1e-3, 0.03], lambda: [_images(2, 4, 16, 16)]),
        "odd": (lambda: [5, 7, 3, 1e-5, 0.1], lambda: [_images(3, 5, 19, 23)]),
        "batch1": (lambda: [32, 64, 3, 1e-3, 0.03], lambda: [_images(1, 32, 33, 35)]),
        "cpu": (lambda: [16, 32, 3, 1e-3, 0.03], lambda: [_images(4, 16, 64, 64)]),
    }


def _images(batch_size, channels, height, width):
    """Off centre, so that the convolved channels are too."""
    return torch.randn(batch_size, channels, height, width) + 1.0
