"""Normalization by count, mean and sum of squares, which begin at zero and are merged in train()."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, d, eps, clip):
        super().__init__()
        self.eps, self.clip = eps, clip
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(d))
        self.register_buffer("m2", torch.zeros(d))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                n = x.shape[0]
                m = x.mean(0)
                tot = self.count + n
                delta = m - self.mean
                self.m2 += ((x - m) ** 2).sum(0) + delta**2 * self.count * n / tot
                self.mean += delta * n / tot
                self.count.copy_(tot)
        var = self.m2 / self.count.clamp(min=1)
        return ((x - self.mean) / (var.sqrt() + self.eps)).clamp(-self.clip, self.clip)


def get_inputs():
    return [torch.randn(20, 16) * 2 + 1]


def get_init_inputs():
    return [16, 1e-2, 5.0]
