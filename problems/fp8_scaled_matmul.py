"""A product of float8 operands with a scale for each row and column, in bfloat16: a layer of Llama 3 8B.

    x             (8192, 4096)      34 MB, float8_e4m3fn
    x_scale       (8192, 1)         float32: a row is x * x_scale
    weight        (14336, 4096)     59 MB, float8_e4m3fn
    weight_scale  (14336, 1)
    output        (8192, 14336)     235 MB, bfloat16

962 GFLOP: the gate of the feed-forward layer for 8192 tokens. Forward only: float8 has no gradient, and inference is
what it is for. On a GPU that has it, the reference is `torch._scaled_mm`; elsewhere, and for sizes that are no multiple
of 16, it multiplies in float32.

Where kernels go wrong:
- A scale belongs to each row of x and to each row of weight, which is a column of the output: one scale for all is off
  by a fifth.
- The largest value of a row is 448 before it is scaled, so that a sum in float16 overflows.
- Tensor cores of Hopper keep some 14 bits of a float8 sum. A long sum has to move to float32 on the way.
- The output is rounded once, after both scales.
"""

import torch
from torch import nn

LARGEST = 448.0  # of float8_e4m3fn


class Model(nn.Module):
    """x @ weight.t(), with scales."""

    @torch.no_grad()
    def forward(self, x, x_scale, weight, weight_scale):
        fits = x.shape[1] % 16 == 0 and weight.shape[0] % 16 == 0
        if x.is_cuda and fits and x_scale.dtype is torch.float32 and torch.cuda.get_device_capability() >= (9, 0):
            return torch._scaled_mm(x, weight.t(), scale_a=x_scale, scale_b=weight_scale.t(), out_dtype=torch.bfloat16)
        product = (x.to(x_scale.dtype) * x_scale) @ (weight.to(x_scale.dtype) * weight_scale).t()
        return product if product.dtype is torch.float64 else product.to(torch.bfloat16)


def get_init_inputs():
    return []


def get_inputs():
    return _operands(8192, 4096, 14336)


def get_variants():
    return {
        "small": (get_init_inputs, lambda: _operands(32, 64, 48)),
        "odd": (get_init_inputs, lambda: _operands(77, 37, 53)),
        "batch1": (get_init_inputs, lambda: _operands(1, 160, 96)),
        "cpu": (get_init_inputs, lambda: _operands(256, 512, 384)),
    }


def _operands(rows, inner, columns):
    return [*_quantized(rows, inner, 1.0), *_quantized(columns, inner, inner**-0.5)]


def _quantized(rows, inner, size):
    values = size * torch.randn(rows, inner)
    scale = values.abs().amax(1, keepdim=True) / LARGEST
    return [(values / scale).to(torch.float8_e4m3fn), scale]
