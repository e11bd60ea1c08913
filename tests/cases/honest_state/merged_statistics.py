"""A root of what is at least zero, as a variance is."""

import torch
from torch import nn


class ModelNew(nn.Module):
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
                v, m = torch.var_mean(x, 0, correction=0)
                c = self.count.clone()
                tot = c + n
                d = m - self.mean
                self.m2.add_(v * n + d * d * (c * n / tot))
                self.mean.add_(d * (n / tot))
                self.count.add_(n)

        s = torch.sqrt((self.m2 / torch.clamp(self.count, min=1)).clamp(min=0)) + self.eps
        return torch.clamp((x - self.mean) / s, -self.clip, self.clip)
