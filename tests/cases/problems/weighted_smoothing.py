"""Cross entropy with class weights, ignored targets and label smoothing."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, classes, smoothing):
        super().__init__()
        self.register_buffer("weight", torch.linspace(0.5, 2.0, classes))
        self.smoothing = smoothing

    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target, self.weight, label_smoothing=self.smoothing)


def get_inputs():
    return [torch.randn(64, 10) * 2, torch.where(torch.rand(64) < 0.2, -100, torch.randint(0, 10, (64,)))]


def get_init_inputs():
    return [10, 0.1]
