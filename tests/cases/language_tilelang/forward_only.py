"""silu(x * scale) in TileLang, without a backward."""

import tilelang
import tilelang.language as T
import torch
from torch import nn

THREADS = 128


@tilelang.jit(out_idx=[2])
def silu(rows, columns):
    @T.prim_func
    def kernel(
        x: T.Tensor((rows, columns), "float32"),
        scale: T.Tensor((columns,), "float32"),
        y: T.Tensor((rows, columns), "float32"),
    ):
        with T.Kernel(T.ceildiv(columns, THREADS), rows, threads=THREADS) as (block, r):
            for t in T.Parallel(THREADS):
                c = block * THREADS + t
                if c < columns:
                    y[r, c] = x[r, c] * scale[c] / (1.0 + T.exp(-x[r, c] * scale[c]))

    return kernel


def forward(x, scale):
    return silu(*x.shape)(x.detach(), scale.detach())


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return forward(x.contiguous(), self.scale)
