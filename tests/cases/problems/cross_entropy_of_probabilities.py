"""Binary cross-entropy, which refuses what is no probability, and cross-entropy with soft labels."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, predictions, targets, logits, labels):
        binary = nn.functional.binary_cross_entropy(predictions, targets, reduction="none")
        return binary, -(labels * logits.log_softmax(-1)).sum(-1)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.rand(32, 9), torch.rand(32, 9), torch.randn(32, 10), torch.randn(32, 10).softmax(-1)]
