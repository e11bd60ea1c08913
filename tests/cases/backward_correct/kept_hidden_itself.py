"""The reference as a submission: its second backward would raise, if nothing detached what the first forward kept."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.hidden = torch.randn(6, hidden)
        self.i2h = nn.Linear(inputs + hidden, hidden)
        self.h2o = nn.Linear(hidden, outputs)

    def forward(self, x, initial_hidden):
        self.hidden.copy_(initial_hidden)
        self.hidden = torch.tanh(self.i2h(torch.cat((x, self.hidden), dim=1)))
        return self.h2o(self.hidden)
