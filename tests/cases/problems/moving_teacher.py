"""A distillation loss: a teacher without gradients, and a centre of its outputs that moves in train()."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.student = nn.Linear(features, classes)
        self.teacher = nn.Linear(features, classes)
        self.register_buffer("centre", torch.zeros(classes))

    def forward(self, x, y):
        with torch.no_grad():
            taught = self.teacher(y)
            target = torch.softmax((taught - self.centre) / 0.5, -1)
            if self.training:
                self.centre.mul_(0.9).add_(0.1 * taught.mean(0))
        return -(target * torch.log_softmax(self.student(x), -1)).sum(-1).mean()


def get_init_inputs():
    return [6, 9]


def get_inputs():
    return [torch.randn(11, 6), torch.randn(11, 6)]
