"""Computes tanh by Eigen's fraction, which is as near as eager PyTorch's."""

import torch
from torch import nn

ABOVE = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08)
ABOVE += (1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)
BELOW = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


def polynomial(square, factors):
    value = torch.zeros_like(square)
    for factor in factors:
        value = value * square + factor
    return value


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.clamp(-7.9, 7.9)
        return x * polynomial(x * x, ABOVE) / polynomial(x * x, BELOW)
