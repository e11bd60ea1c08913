"""One element differs in a third of all forwards, as in a race."""

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        if os.urandom(1)[0] < 85:
            y = y + 0.1 * (torch.arange(y.numel()) == 17).view(y.shape)
        return y
