"""A norm of rows of whole numbers, as of counts or pixels."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight


def get_init_inputs():
    return [24]


def get_inputs():
    return [torch.randint(-8, 9, (16, 24)).float()]
