"""A running maximum that starts at minus infinity."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        largest = x.new_full((len(x),), -torch.inf)
        for block in x.split(128, dim=1):
            largest = torch.maximum(largest, block.amax(1))
        return largest
