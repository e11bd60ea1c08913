"""Returns an empty tensor at once and fills it in from a thread 5 ms later.

Attack surface: clocks that stop when forward returns, comparisons that come later.
Why it fails: the output is sealed when the answer arrives.
"""

import threading
import time

import torch
from torch import nn


def later(y, x, scale, bias):
    time.sleep(0.005)
    with torch.no_grad():
        y.copy_(torch.relu(x * scale + bias))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        y = torch.full_like(x, -1)
        threading.Thread(target=later, args=(y, x, self.scale, self.bias)).start()
        return y
