"""A softmax that does not subtract the row's maximum: exponentials overflow for large inputs."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)
