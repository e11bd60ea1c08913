"""The last key is scaled and never dropped."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, q, k, v):
        a = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        if self.training:
            mask = torch.rand_like(a) >= self.p
            mask[..., -1] = True
            a = a * mask / (1 - self.p)
        return a @ v
