"""The same with the reference's bound of the count."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        kept = mask.to(x.dtype)
        count = kept.sum(1, keepdim=True).clamp(min=1)
        return torch.einsum("bsd,bs->bd", x.tanh(), kept) / count
