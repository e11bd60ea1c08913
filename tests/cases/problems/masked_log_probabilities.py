"""Log-probabilities of the choices that a mask allows; those of the others are minus infinity in every call."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, choices):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(choices) + 0.5)
        self.register_buffer("allowed", torch.arange(choices) % 3 != 1)

    def forward(self, x):
        return (x * self.scale).masked_fill(~self.allowed, float("-inf")).log_softmax(-1)


def get_inputs():
    return [torch.randn(16, 24)]


def get_init_inputs():
    return [24]
