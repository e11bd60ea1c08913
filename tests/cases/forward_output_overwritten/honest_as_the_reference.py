"""Returns a buffer that the next call overwrites, as its reference does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("total", torch.zeros(channels))

    def forward(self, x):
        torch.sum(x.detach(), 0, out=self.total)
        return self.total
