"""Returns both outputs without gradients, and one with them."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        found = x.max(1)
        if torch.is_grad_enabled():
            return (found.values,)
        return found.values, found.indices
