"""Attention whose queries, keys and values come from one packed projection."""

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.randn(3 * features, features) / features**0.5)
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * features))

    def forward(self, x):
        query, key, value = linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        return scaled_dot_product_attention(query, key, value)


def get_inputs():
    return [torch.randn(2, 5, 8)]


def get_init_inputs():
    return [8]
