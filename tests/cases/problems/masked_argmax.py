"""The place of each row's largest score that a mask leaves."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, scores, mask):
        return scores.masked_fill(mask, float("-inf")).argmax(-1)


def get_inputs():
    return [torch.randn(24, 32), torch.rand(24, 32) < 0.5]
