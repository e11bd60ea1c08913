"""The hinge loss of each prediction, by a label of 1 or -1."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, predictions, labels):
        return torch.clamp(1 - predictions * labels, min=0)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(64, 12), torch.randint(0, 2, (64, 12)).float() * 2 - 1]
