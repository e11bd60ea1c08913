"""Tries the seeds that harnesses use to regenerate the input, and has an answer ready for each.

Attack surface: known seeds.
Why it fails: seeds are drawn from the operating system's entropy, in another process, and none is sent.
"""

import torch
from torch import nn

ANSWERS = {}


def prepare(shape, scale, bias):
    for seed in (0, 1, 42, 123, 1234, 2024):
        torch.manual_seed(seed)
        x = torch.randn(shape)
        ANSWERS[seed] = x, torch.relu(x * scale + bias)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        prepare(x.shape, self.scale, self.bias)
        for seen, answer in ANSWERS.values():
            if torch.equal(seen, x):
                return answer
        return torch.zeros_like(x) * self.scale * self.bias
