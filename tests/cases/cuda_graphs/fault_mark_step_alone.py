"""torch.compile with CUDA graphs, and a mark where each call begins: its output is overwritten all the same."""

import torch
from torch import nn


@torch.compile(mode="reduce-overhead")
def forward(x, scale):
    return nn.functional.silu(x * scale)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        torch.compiler.cudagraph_mark_step_begin()
        return forward(x, self.scale)
