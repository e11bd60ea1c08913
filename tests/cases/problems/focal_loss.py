"""A focal loss over classes, of which a code is ignored; the mean is over at least one."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, ignored):
        super().__init__()
        self.ignored = ignored

    def forward(self, scores, target):
        kept = target != self.ignored
        index = target.clamp(min=0)[:, None]
        logs = scores.log_softmax(-1).gather(-1, index)[:, 0]
        return ((logs.exp() - 1).square() * -logs * kept).sum() / kept.sum().clamp(min=1)


def get_init_inputs():
    return [-100]


def get_inputs():
    target = torch.randint(0, 9, (70,))
    target[torch.rand(70) < 0.2] = -100
    return [torch.randn(70, 9), target]
