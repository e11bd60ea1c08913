"""The nearest code of each vector, as in vector quantization: the only output is an integer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, codes, features):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes, features))

    def forward(self, x):
        return (x[:, None] - self.codes).square().sum(-1).argmin(-1)


def get_init_inputs():
    return [24, 8]


def get_inputs():
    return [torch.randn(64, 8)]
