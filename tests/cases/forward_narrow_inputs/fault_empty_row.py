"""Divides by the number of kept elements, which may be zero."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        kept = mask.to(x.dtype)
        count = kept.sum(1, keepdim=True)
        return torch.einsum("bsd,bs->bd", x.tanh(), kept) / count
