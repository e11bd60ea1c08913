"""In eval() it keeps scale and shift of the norm, by a key that lacks the bias and the mean."""

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
        key = (norm.weight._version, norm.running_var._version)
        if self.folded is None or self.folded[0] != key:
            scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
            self.folded = key, scale, norm.bias - norm.running_mean * scale
        return torch.relu(torch.addcmul(self.folded[2], x, self.folded[1]))
