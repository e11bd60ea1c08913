"""The backward's scan runs backwards."""

import torch
from torch import nn


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        states = [x[:, 0]]
        for t in range(1, x.shape[1]):
            states.append(0.9 * states[-1] + x[:, t])
        return torch.stack(states, 1)

    @staticmethod
    def backward(ctx, grad_output):
        grad_x, carried = torch.empty_like(grad_output), torch.zeros_like(grad_output[:, 0])
        for t in reversed(range(grad_output.shape[1])):
            carried = 0.9 * carried + grad_output[:, t]
            grad_x[:, t] = carried
        return grad_x


class ModelNew(nn.Module):
    def forward(self, x):
        return Scan.apply(x)
