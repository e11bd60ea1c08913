"""The mean of many Huber losses of numbers in [0, 1]: the tolerance of so long a sum is wider than one term's share."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.huber_loss(predictions, targets, delta=0.5)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.rand(367, 701), torch.rand(367, 701)]
