"""The root mean square lacks the reference's epsilon."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(1, keepdim=True))
