"""The mean of the steps before each sample's length, as behind an encoder of padded sequences."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x, length):
        valid = torch.arange(x.shape[1], device=x.device) < length[:, None]
        return (torch.tanh(self.linear(x)) * valid[..., None]).sum(1) / length[:, None]


def get_init_inputs():
    return [24]


def get_inputs():
    return [torch.randn(32, 20, 24), torch.randint(1, 21, (32,))]
