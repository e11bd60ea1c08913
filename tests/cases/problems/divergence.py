"""The Kullback-Leibler divergence of probabilities, where 0 log(0) is 0."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.kl_div(torch.log(predictions), targets, reduction="batchmean")


def get_init_inputs():
    return []


def get_inputs():
    return [torch.rand(64, 100).softmax(-1), torch.rand(64, 100).softmax(-1)]
