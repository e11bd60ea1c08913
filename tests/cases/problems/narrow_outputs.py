"""Outputs that have a dtype of their own, whatever the model's: rounded, or made anew."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        logits = self.linear(x)
        return torch.softmax(logits.float(), -1), torch.relu(logits).bfloat16(), torch.ones(3, device=x.device)


def get_init_inputs():
    return [16]


def get_inputs():
    return [torch.randn(32, 16)]
