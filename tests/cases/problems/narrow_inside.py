"""A linear layer that the reference computes in bfloat16, with float32 around it, as under autocast."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))

    def forward(self, x):
        return (x.bfloat16() @ self.weight.bfloat16().T).float()


def get_init_inputs():
    return [24, 16]


def get_inputs():
    return [torch.randn(40, 24)]
