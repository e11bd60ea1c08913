"""A recurrent cell that keeps its hidden state, with its graph, and overwrites it at the next call."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.hidden = torch.randn(6, hidden)
        self.i2h = nn.Linear(inputs + hidden, hidden)
        self.h2o = nn.Linear(hidden, outputs)

    def forward(self, x, initial_hidden):
        self.hidden.copy_(initial_hidden)
        self.hidden = torch.tanh(self.i2h(torch.cat((x, self.hidden), dim=1)))
        return self.h2o(self.hidden)


def get_init_inputs():
    return [10, 12, 8]


def get_inputs():
    return [torch.rand(6, 10), torch.rand(6, 12)]
