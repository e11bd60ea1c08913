"""Returns the mean of the tanh as a float, before the shift."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) + 0.5
        return y, torch.tanh(x).mean().item(), int((y > 0).sum())
