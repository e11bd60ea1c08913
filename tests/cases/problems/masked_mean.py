"""The mean over the elements that a mask keeps; zero where it keeps none."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, mask):
        kept = mask.float()
        return (x.tanh() * kept[..., None]).sum(1) / kept.sum(1, keepdim=True).clamp(min=1)


def get_inputs():
    return [torch.randn(6, 13, 4), torch.rand(6, 13) > 0.2]  # a row is empty once in a thousand million


def get_init_inputs():
    return []
