"""Creates its parameters as the reference does, under names of its own and in another order.

Wrongly rejected elsewhere: graders that pair parameters of one shape by their order.
"""

import torch
from torch import nn
from torch.nn.functional import linear


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        q, k, v = (nn.Linear(features, features) for _ in range(3))
        self.w_v, self.b_v, self.w_q, self.w_k = v.weight, v.bias, q.weight, k.weight
        self.b_k, self.b_q = k.bias, q.bias

    def forward(self, x):
        q, k, v = linear(x, self.w_q, self.b_q), linear(x, self.w_k, self.b_k), linear(x, self.w_v, self.b_v)
        return torch.softmax(q @ k.transpose(-1, -2) / x.shape[-1] ** 0.5, -1) @ v
