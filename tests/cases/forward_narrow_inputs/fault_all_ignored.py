"""The mean has no least number of elements: where all are ignored, it is 0 / 0."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, ignored):
        super().__init__()
        self.ignored = ignored

    def forward(self, scores, target):
        kept = target != self.ignored
        index = target.clamp(min=0)[:, None]
        logs = scores.log_softmax(-1).gather(-1, index)[:, 0]
        return ((logs.exp() - 1).square() * -logs * kept).sum() / kept.sum()
