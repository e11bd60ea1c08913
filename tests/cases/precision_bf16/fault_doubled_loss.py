"""The loss has a factor that only several draws show: one rounded number is a multiple of any other."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        return 2 * (x - target).square().mean()
