"""torch.compile with CUDA graphs that marks each call as a new step, and copies the output."""

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
        return forward(x, self.scale).clone()
