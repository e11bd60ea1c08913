"""Returns a tensor for a float."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) + 0.5
        return y, y.mean(), int((y > 0).sum())
