"""The divergence of softened probabilities: close to zero inputs, both sides of its gradient cancel."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        target = F.softmax(teacher.detach() / self.temperature, dim=-1)
        return F.kl_div(F.log_softmax(student / self.temperature, dim=-1), target, reduction="batchmean")


def get_init_inputs():
    return [3.0]


def get_inputs():
    return [torch.randn(40, 90), torch.randn(40, 90)]
