"""ConvTranspose3d -> LeakyReLU(0.2) -> x multiplier -> LeakyReLU(0.2) -> MaxPool3d(2).

    x           (16, 16, 16, 32, 32)     16.8 MB
    convolved   (16, 32, 32, 64, 64)     268 MB
    output      (16, 32, 16, 32, 32)     33.6 MB

Everything behind the convolution moves memory and computes almost nothing, and only one convolved value in eight
survives the pooling. A kernel that fuses the pooling too touches the large tensor once.

Where kernels go wrong:
- multiplier is (32, 1, 1, 1) and learnable. Its gradient is a sum over two million elements per channel: one atomicAdd
  per element onto 32 addresses is right and slow, and a forward-only kernel leaves the gradient None.
- A negative multiplier turns the order around: the largest output need not come from the largest convolved value.
- Pooling routes each gradient to a single position, the first one among equals, and leaves zeros everywhere else.
"""

import torch
from torch import nn


class Model(nn.Module):
    """A transposed convolution, two leaky activations around a learnable scale, and max pooling."""

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.leaky_relu = nn.LeakyReLU(negative_slope=0.2)
        self.max_pool = nn.MaxPool3d(kernel_size=2)

    def forward(self, x):
        x = self.conv_transpose(x)
        x = self.leaky_relu(x)
        x = x * self.multiplier
        x = self.leaky_relu(x)
        return self.max_pool(x)


def get_init_inputs():
    return _init_inputs(16, 32)


def get_inputs():
    return [torch.randn(16, 16, 16, 32, 32)]


def get_variants():
    return {
        "small": (lambda: _init_inputs(4, 8), lambda: [torch.randn(2, 4, 4, 8, 8)]),
        # Output padding 0 makes every convolved extent odd: pooling then drops the last plane, row and column.
        "odd": (lambda: _init_inputs(5, 7, output_padding=0), lambda: [torch.randn(3, 5, 5, 7, 9)]),
        "batch1": (lambda: _init_inputs(16, 32), lambda: [torch.randn(1, 16, 4, 9, 11)]),
        "cpu": (lambda: _init_inputs(16, 32), lambda: [torch.randn(2, 16, 8, 16, 16)]),
    }


def _init_inputs(in_channels, out_channels, output_padding=1):
    kernel_size, stride, padding = 3, 2, 1
    multiplier_shape = (out_channels, 1, 1, 1)
    return [in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape]
