"""Divides by the number of kept elements, which may be zero."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return (x.tanh() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
