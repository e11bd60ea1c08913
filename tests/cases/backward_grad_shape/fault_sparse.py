"""The table's gradient is sparse, where the reference's is dense."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, tokens, features):
        super().__init__()
        self.embedding = nn.Embedding(tokens, features, sparse=True)

    def forward(self, tokens):
        return self.embedding(tokens).sum(dim=1)
