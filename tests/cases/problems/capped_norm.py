"""A batch norm and a ReLU6, whose upper bound only eval() reaches: in train() eight samples have no value above 2.65."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features, affine=False)

    def forward(self, x):
        return nn.functional.relu6(self.norm(x))


def get_inputs():
    return [8 * torch.randn(8, 30)]


def get_init_inputs():
    return [30]
