"""Leaves out the newest key, until the ring is full."""

import math
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, heads, groups, size, d, cap):
        super().__init__()
        self.heads, self.groups, self.cap = heads, groups, cap
        self.register_buffer("k", torch.zeros(groups, size, d))
        self.register_buffer("v", torch.zeros(groups, size, d))
        self.register_buffer("n", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, q, k, v):
        G, S, D = self.k.shape
        n = self.n.item()
        p = n % S
        self.k[:, p] = k
        self.v[:, p] = v
        self.n.fill_(n + 1)
        L = min(n, S) or 1
        out = torch.empty_like(q)
        R = q.shape[0] // G
        for h in range(q.shape[0]):
            acc, l, m = q.new_zeros(D), 0.0, -1e30
            for j in range(L):
                s = float(self.cap * torch.tanh((q[h] @ self.k[h // R, j]) * D**-0.5 / self.cap))
                mn = max(m, s)
                a, e = math.exp(m - mn), math.exp(s - mn)
                acc = acc * a + e * self.v[h // R, j]
                l, m = l * a + e, mn
            out[h] = acc / l
        return out
