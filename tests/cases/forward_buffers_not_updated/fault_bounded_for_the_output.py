"""Scales the rows for the output, and leaves the parameter as it is."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.embedding = nn.Embedding(rows, features)
        self.out = nn.Linear(features, features)

    def forward(self, index):
        weight = self.embedding.weight
        norms = weight.detach().norm(dim=1, keepdim=True)
        bounded = weight + (torch.where(norms > 2, weight * (2 / (norms + 1e-7)), weight) - weight).detach()
        return torch.tanh(self.out(torch.nn.functional.embedding(index, bounded)))
