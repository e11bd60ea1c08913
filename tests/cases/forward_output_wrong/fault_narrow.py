"""The output that is rounded is three per cent too large before that."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        logits = self.linear(x)
        return torch.softmax(logits, -1), torch.relu(1.03 * logits).bfloat16(), torch.ones(3, device=x.device)
