"""Cross entropy with a small multiple of the squared log of the partition function, as language models add it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, logits, targets):
        log_partition = logits.logsumexp(-1)
        losses = log_partition - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        losses = 0.9 * losses + 0.1 * (log_partition - logits.mean(-1)) + self.weight * log_partition**2
        return losses.mean()


def get_init_inputs():
    return [1e-3]


def get_inputs():
    return [torch.randn(48, 30), torch.randint(30, (48,))]
