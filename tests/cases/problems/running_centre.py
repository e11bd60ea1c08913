"""Subtracts a moving average of batch means, which train() updates with weights of its own."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.register_buffer("centre", torch.randn(features))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.centre.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - self.centre) * self.scale


def get_inputs():
    return [torch.randn(14, 6)]


def get_init_inputs():
    return [6]
