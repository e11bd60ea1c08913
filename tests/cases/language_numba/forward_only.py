"""silu(x * scale) in Numba, without a backward."""

import math

import numba
import torch
from numba import cuda
from torch import nn


@cuda.jit
def silu(xs, scales, ys):
    i = cuda.grid(1)
    if i < ys.size:
        z = xs[i] * scales[i % scales.size]
        ys[i] = z / (numba.float32(1) + math.exp(-z))


def forward(x, scale):
    y = torch.empty_like(x)
    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    flat = [cuda.as_cuda_array(value.detach().view(-1), sync=False) for value in (x, scale, y)]
    silu[(x.numel() + 255) // 256, 256, stream](*flat)
    return y


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return forward(x.contiguous(), self.scale)
