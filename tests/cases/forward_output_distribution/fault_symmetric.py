"""A query and a key share a random number with the key and the query of the same indices."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, q, k, v):
        a = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        if self.training:
            numbers = torch.rand_like(a).tril()
            numbers = numbers + numbers.tril(-1).transpose(-1, -2)
            a = a * (numbers >= self.p) / (1 - self.p)
        return a @ v
