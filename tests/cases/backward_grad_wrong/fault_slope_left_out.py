"""The slope of the tanh is left out in each step."""

import torch
from torch import nn


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class ModelNew(nn.Module):
    leak = 0.7

    def __init__(self, width):
        super().__init__()
        self.take = nn.Linear(width, width)
        self.keep = nn.Linear(width, width, bias=False)

    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = self.leak * state + Tanh.apply(self.take(x[:, step]) + self.keep(state))
            states.append(state)
        return torch.stack(states, 1)
