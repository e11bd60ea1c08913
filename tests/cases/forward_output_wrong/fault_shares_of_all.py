"""Takes the softmax over all experts, and not over the chosen ones."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 6)
        self.w = nn.Parameter(torch.randn(6, 16, 8) * 0.25)

    def forward(self, x):
        s = self.gate(x)
        i = s.topk(2, -1).indices
        p = torch.softmax(s, -1).gather(1, i)
        y = torch.einsum("nd,edf->nef", x, self.w)
        return (p[..., None] * y.gather(1, i[..., None].expand(-1, -1, 8))).sum(1)
