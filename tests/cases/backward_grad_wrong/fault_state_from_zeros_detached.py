"""Cuts the graph between steps."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.hidden = hidden
        self.take = nn.Linear(features, hidden)
        self.keep = nn.Linear(hidden, hidden)

    def forward(self, x):
        state = torch.zeros(x.shape[0], self.hidden, device=x.device)
        for step in range(x.shape[1]):
            state = torch.tanh(self.take(x[:, step]) + self.keep(state.detach()))
        return state
