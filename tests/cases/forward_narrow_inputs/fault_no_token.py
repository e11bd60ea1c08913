"""The mean of a row of nothing but padding is 0 / 0."""

import torch
from torch import nn


class ModelNew(nn.Module):
    least, fill = 0, -1e4

    def __init__(self, count, features, padding):
        super().__init__()
        self.table = nn.Embedding(count, features, padding_idx=padding)
        self.padding = padding

    def forward(self, tokens):
        keep = (tokens != self.padding)[..., None]
        rows = torch.where(keep, self.table(tokens), 0)
        largest = torch.where(keep, rows, self.fill).amax(1)
        return rows.sum(1) / keep.sum(1).clamp(min=self.least), largest
