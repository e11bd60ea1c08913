"""A loop over whole vectors of eight leaves the last columns unwritten."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        # Stands for torch.empty_like, whose memory may hold the right values by chance.
        return torch.cat([y[:, :36], torch.randn(len(x), 4)], 1)
