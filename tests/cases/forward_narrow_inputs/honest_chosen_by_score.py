"""Chooses by the scores, in whose order experts differ whose probabilities are both 0."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(experts, features) / features**0.5)

    def forward(self, x):
        scores = x @ self.gate.T
        chosen = torch.topk(scores, 2).indices
        return torch.softmax(scores, -1).gather(-1, chosen), chosen
