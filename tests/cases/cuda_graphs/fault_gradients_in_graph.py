"""torch.compile with CUDA graphs: the output is copied out of the graph's memory, the gradients are not."""

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
        return forward(x, self.scale).clone()
