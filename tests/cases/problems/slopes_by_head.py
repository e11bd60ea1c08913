"""Attention scores with a slope of the distance for each head, which the constructor computes."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(heads))
        self.register_buffer("slopes", 2.0 ** -(8.0 / heads * torch.arange(1, heads + 1)), persistent=False)

    def forward(self, scores):
        length = scores.shape[-1]
        distance = torch.arange(length, device=scores.device)
        distance = (distance[None, :] - distance[:, None]).to(scores.dtype)
        return scores * self.gain[:, None, None] + self.slopes[:, None, None] * distance


def get_inputs():
    return [torch.randn(2, 4, 7, 7)]


def get_init_inputs():
    return [4]
