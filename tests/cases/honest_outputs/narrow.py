"""Another order of the same sums, with softmax by hand and the same roundings."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        logits = (self.linear.weight * x[:, None]).flip(-1).sum(-1) + self.linear.bias
        shifted = torch.exp(logits - logits.amax(-1, keepdim=True))
        return shifted / shifted.sum(-1, keepdim=True), logits.clamp_min(0).bfloat16(), x.new_ones(3)
