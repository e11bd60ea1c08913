"""The mean over the elements that a mask of zeros and ones keeps; zero where it keeps none."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, mask):
        return (x.tanh() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def get_inputs():
    return [torch.randn(6, 33, 4), (torch.rand(6, 33) > 0.3).float()]


def get_init_inputs():
    return []
