"""Scales the rows that are read to the bound, in place, by a formula of its own."""

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
            used = index.unique()
            norms = weight[used].norm(dim=1, keepdim=True)
            weight[used] = torch.where(norms > 2, weight[used] * (2 / (norms + 1e-7)), weight[used])
        return torch.tanh(self.out(torch.nn.functional.embedding(index, weight)))
