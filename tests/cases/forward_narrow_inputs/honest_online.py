"""A softmax with a running maximum, in pieces."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        highest, total = torch.full_like(x[:, :1], -torch.inf), torch.zeros_like(x[:, :1])
        for part in x.split(16, 1):
            higher = torch.maximum(highest, part.amax(1, keepdim=True))
            total = total * (highest - higher).exp() + (part - higher).exp().sum(1, keepdim=True)
            highest = higher
        return (x - highest).exp() / total
