"""An ELU of numbers between 0 and 1, of which it is the identity."""

import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.elu(x) * 2


def get_init_inputs():
    return []


def get_inputs():
    return [torch.rand(12, 40)]
