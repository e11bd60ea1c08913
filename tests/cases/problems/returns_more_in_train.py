"""A classifier with an auxiliary output in train(), as of Inception; in eval() it returns the classes alone."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.main = nn.Parameter(torch.randn(features, classes))
        self.auxiliary = nn.Parameter(torch.randn(features, classes))

    def forward(self, x):
        hidden = torch.tanh(x)
        scores = hidden @ self.main
        return (scores, hidden @ self.auxiliary) if self.training else scores.argmax(-1)


def get_inputs():
    return [torch.randn(12, 9)]


def get_init_inputs():
    return [9, 5]
