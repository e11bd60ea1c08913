"""Averages 99% of each row: the mean hardly moves.

Attack surface: tolerances wider than what leaving data out changes.
Why it fails: the bound follows from float32 and the length of the sum, and three elements that are edited anywhere must show.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(rows))

    def forward(self, x):

        keep = x.shape[1] * 99 // 100
        return x[:, :keep].mean(dim=1) * self.scale
