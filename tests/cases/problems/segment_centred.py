"""Segment centering: each row less the mean of its segment, and those means."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, segments):
        super().__init__()
        self.segments = segments
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x, index):
        count = x.new_zeros(self.segments).index_add(0, index, x.new_ones(len(x))).clamp(min=1)
        means = x.new_zeros(self.segments, x.shape[1]).index_add(0, index, x * self.weight) / count[:, None]
        return x * self.weight - means[index], means


def get_init_inputs():
    return [4, 6]


def get_inputs():
    return [torch.randn(40, 4), torch.randint(0, 6, (40,))]
