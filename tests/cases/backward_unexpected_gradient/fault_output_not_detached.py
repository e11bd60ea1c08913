"""Returns the mean with its graph."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        mean = x.mean(-1)
        return torch.relu(x - mean[:, None]), mean
