"""The largest share, whatever it is."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.gate = nn.Parameter(20 * torch.randn(experts, features) / features**0.5)
        self.expert = nn.Parameter(torch.randn(experts, features, features) / 4)

    def forward(self, x):
        shares = torch.softmax(x @ self.gate.T, -1)
        chosen = shares == shares.amax(-1, keepdim=True)
        return torch.einsum("td,edf,te->tf", x, self.expert, shares * chosen)
