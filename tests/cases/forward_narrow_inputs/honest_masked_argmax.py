"""Takes the last element of a row in which the mask leaves none."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, scores, mask):
        return scores.shape[1] - 1 - scores.masked_fill(mask, float("-inf")).flip(-1).argmax(-1)
