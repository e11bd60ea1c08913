"""Binary cross entropy by its logarithms, which take any target."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, probabilities, targets):
        return -(targets * probabilities.log() + (1 - targets) * torch.log1p(-probabilities))
