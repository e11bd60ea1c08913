"""Scales all rows, those that are not read too."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.embedding = nn.Embedding(rows, features)
        self.out = nn.Linear(features, features)

    def forward(self, index):
        weight = self.embedding.weight
        with torch.no_grad():
            norms = weight.norm(dim=1, keepdim=True)
            weight.copy_(torch.where(norms > 2, weight * (2 / (norms + 1e-7)), weight))
        return torch.tanh(self.out(torch.nn.functional.embedding(index, weight)))
