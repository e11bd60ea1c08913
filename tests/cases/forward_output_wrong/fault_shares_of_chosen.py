"""Takes the softmax over the chosen experts alone."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 6)
        self.w = nn.Parameter(torch.randn(6, 16, 8) * 0.25)

    def forward(self, x):
        v, i = self.gate(x).topk(2, -1)
        p = torch.softmax(v, -1)
        y = torch.einsum("nd,edf->nef", x, self.w)
        return (p[..., None] * y.gather(1, i[..., None].expand(-1, -1, 8))).sum(1)
