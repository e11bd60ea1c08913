"""The filter by its two passes, without the buffer."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()

    def forward(self, x):
        size = x.shape[-1]
        padded = nn.functional.pad(x, (1, 1, 1, 1))
        rows = padded[..., :size] + 2 * padded[..., 1 : size + 1] + padded[..., 2:]
        return (rows[..., :-2, :] + 2 * rows[..., 1:-1, :] + rows[..., 2:, :]) / 64
