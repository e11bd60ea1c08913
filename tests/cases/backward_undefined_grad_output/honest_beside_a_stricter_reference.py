"""Takes either grad_output alone, which the reference does not."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sin(x), x * x
