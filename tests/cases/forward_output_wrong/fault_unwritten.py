"""A loop over whole vectors of eight leaves the last columns unwritten."""

import random

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        # Stands for torch.empty_like, whose memory may hold the right values by chance.
        chance = torch.Generator().manual_seed(random.SystemRandom().getrandbits(62))
        return torch.cat([y[:, :36], torch.randn(len(x), 4, generator=chance)], 1)
