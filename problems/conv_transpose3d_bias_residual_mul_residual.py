"""ConvTranspose3d -> + bias -> + o -> * o -> + o, where o is a detached copy of the convolved tensor.

    x           (16, 32, 16, 32, 32)     33.6 MB
    convolved   (16, 64, 32, 64, 64)     537 MB
    output      (16, 64, 32, 64, 64)     537 MB

Written out with c for the convolved tensor and b for bias, the value is ((c + b) + o) * o + o = c * (2c + b + 1).

Where kernels go wrong:
- The formula above is right for the values and wrong for the gradient. o is detached, so autograd sees o as a constant:
  d/dc = o = c, not 4c + b + 1. A kernel that simplifies first and differentiates later trains another model.
- d/db is o as well, summed over batch and space. It is the same under both readings, so it does not tell them apart.
- bias is a parameter of the model, (64, 1, 1, 1), beside the convolution's own bias.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A transposed convolution followed by a residual chain on a detached copy of its own output."""

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv_transpose(x)
        o = x.clone().detach()
        x = x + self.bias
        x = x + o
        x = x * o
        return x + o


def get_init_inputs():
    return _init_inputs(32, 64)


def get_inputs():
    return [torch.randn(16, 32, 16, 32, 32)]


def get_variants():
    return {
        "small": (lambda: _init_inputs(4, 8), lambda: [torch.randn(2, 4, 4, 8, 8)]),
        # Output padding 0 makes every convolved extent odd, so that a plane is no multiple of four floats.
        "odd": (lambda: _init_inputs(5, 7, output_padding=0), lambda: [torch.randn(3, 5, 5, 7, 9)]),
        "batch1": (lambda: _init_inputs(32, 64), lambda: [torch.randn(1, 32, 3, 9, 11)]),
        "cpu": (lambda: _init_inputs(16, 32), lambda: [torch.randn(2, 16, 8, 16, 16)]),
    }


def _init_inputs(in_channels, out_channels, output_padding=1):
    kernel_size, stride, padding = 3, 2, 1
    bias_shape = (out_channels, 1, 1, 1)
    return [in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape]
