"""Divides by one where nothing is kept."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        kept = mask.sum(1, keepdim=True)
        return torch.einsum("nsf,ns->nf", x.tanh(), mask) / torch.where(kept < 1, torch.ones_like(kept), kept)
