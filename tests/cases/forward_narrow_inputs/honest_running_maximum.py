"""Sums exponentials block by block, less the maximum so far."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        top = x[:, :64].amax(-1, keepdim=True)
        total = 0
        for part in x.split(64, -1):
            above = torch.maximum(top, part.amax(-1, keepdim=True))
            total = total * (top - above).exp() + (part - above).exp().sum(-1, keepdim=True)
            top = above
        return x - top - total.log()
