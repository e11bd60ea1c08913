"""A step of attention over a ring of keys and values in buffers."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, heads, groups, size, d, cap):
        super().__init__()
        self.heads, self.groups, self.cap = heads, groups, cap
        self.register_buffer("k", torch.zeros(groups, size, d))
        self.register_buffer("v", torch.zeros(groups, size, d))
        self.register_buffer("n", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, q, k, v):
        size = self.k.shape[1]
        p = self.n % size
        self.k[:, p] = k
        self.v[:, p] = v
        self.n += 1
        m = torch.arange(size, device=q.device) < self.n
        kk = self.k.repeat_interleave(self.heads // self.groups, 0)
        vv = self.v.repeat_interleave(self.heads // self.groups, 0)
        s = torch.einsum("hd,hnd->hn", q, kk) * q.shape[-1] ** -0.5
        s = self.cap * torch.tanh(s / self.cap)
        s = s.masked_fill(~m, float("-inf"))
        return torch.einsum("hn,hnd->hd", s.softmax(-1), vv)


def get_inputs():
    return [torch.randn(8, 16), torch.randn(2, 16), torch.randn(2, 16)]


def get_init_inputs():
    return [8, 2, 3, 16, 5.0]
