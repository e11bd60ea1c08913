"""The honest twin: the key has all that the norm depends on."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.folded = None

    def forward(self, x):
        norm = self.norm
        if norm.training or torch.is_grad_enabled():
            return torch.relu(norm(x))
        key = tuple(of._version for of in (norm.weight, norm.bias, norm.running_mean, norm.running_var))
        if self.folded is None or self.folded[0] != key:
            scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
            self.folded = key, scale, norm.bias - norm.running_mean * scale
        return torch.relu(torch.addcmul(self.folded[2], x, self.folded[1]))
