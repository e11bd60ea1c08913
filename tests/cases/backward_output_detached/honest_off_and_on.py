"""The recording of gradients is off for a statistic only: turned on again, or in a block that ends."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        records = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.mean = x.mean()
        torch.set_grad_enabled(records)
        with torch.inference_mode():
            self.largest = x.amax()
        return torch.relu(x * self.scale + self.bias)
