"""No kernel at all: the chain rewritten as one product, out of place only where it has to be."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv_transpose(x)
        o = x.detach()
        # ((x + b) + o) * o + o, with the sum in brackets made in place and the rest in one fused multiply-add
        return torch.addcmul(o, (x + self.bias).add_(o), o)
