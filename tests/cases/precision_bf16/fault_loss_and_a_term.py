"""The loss has a term too many, so that its factor differs from draw to draw."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        return (x - target).square().mean() + x.mean() + 0.5
