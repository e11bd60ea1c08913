"""The head of a transformer block: residual add -> RMSNorm, and position ids from the attention mask.

    x, residual         (8, 2048, 2048)      134 MB each
    attention_mask      (8, 2048)            int64, left-padded: zeros, then ones
    normalized          (8, 2048, 2048)      134 MB      (x + residual) / rms(x + residual) * weight
    new_residual        (8, 2048, 2048)      134 MB      x + residual
    position_ids        (8, 2048)            int64       running count of ones, minus one, not below zero

Three outputs: two carry gradients, the third is an integer and has none.

Where kernels go wrong:
- Both float outputs lead back to both float inputs: the gradient of new_residual has to be added to RMSNorm's.
- Either of the two gradients may be missing, when only one of the outputs is used.
- d/dh of h / rms(h) has a second term, -h * mean(g * w * h) / rms^3; leaving it out gives a gradient of the right size
  and sign that is still wrong.
- The gradient of weight is a sum over 16384 rows for each of 2048 columns: the reduction runs across blocks.
- eps stands inside the root.
"""

import torch
from torch import nn


class Model(nn.Module):
    """Adds the residual stream, normalizes by the root mean square, and counts positions."""

    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x, residual, attention_mask):
        new_residual = x + residual
        mean_square = new_residual.pow(2).mean(dim=-1, keepdim=True)
        normalized = new_residual * torch.rsqrt(mean_square + self.eps) * self.weight
        position_ids = (attention_mask.cumsum(dim=-1) - 1).clamp(min=0)
        return normalized, new_residual, position_ids


def get_init_inputs():
    return [2048, 1e-5]


def get_inputs():
    return _inputs(8, 2048, 2048)


def get_variants():
    return {
        "small": (lambda: [64, 1e-5], lambda: _inputs(2, 16, 64)),
        "odd": (lambda: [203, 1e-3], lambda: _inputs(3, 37, 203)),
        "batch1": (lambda: [1024, 1e-5], lambda: _inputs(1, 33, 1024)),
        "cpu": (lambda: [1024, 1e-5], lambda: _inputs(2, 256, 1024)),
    }


def _inputs(batch_size, sequence_length, hidden_size):
    x = torch.randn(batch_size, sequence_length, hidden_size)
    residual = torch.randn(batch_size, sequence_length, hidden_size)
    padding = torch.randint(sequence_length // 2, (batch_size, 1))
    attention_mask = (torch.arange(sequence_length) >= padding).long()
    return [x, residual, attention_mask]
