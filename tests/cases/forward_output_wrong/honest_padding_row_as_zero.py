"""The row of padding is taken for zeros, as the reference takes it, and not read."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, count, features, padding):
        super().__init__()
        self.table = nn.Embedding(count, features, padding_idx=padding)
        self.padding = padding

    def forward(self, tokens):
        rows = self.table.weight[tokens.masked_fill(tokens == self.padding, 0)]
        return torch.where((tokens == self.padding)[..., None], 0, rows).tanh()
