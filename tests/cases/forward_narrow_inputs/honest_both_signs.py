"""An ELU with both branches."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return 2 * torch.where(x > 0, x, torch.expm1(x.clamp_max(0)))
