"""A mixture of experts: each token goes to one of four."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.gate = nn.Linear(features, experts, bias=False)
        self.expert = nn.Parameter(torch.randn(experts, features, features) / 4)

    def forward(self, x):
        share, chosen = torch.softmax(self.gate(x), -1).max(-1)
        return torch.einsum("td,tdf->tf", x, self.expert[chosen]) * share[:, None]


def get_init_inputs():
    return [16, 4]


def get_inputs():
    return [torch.randn(64, 16)]
