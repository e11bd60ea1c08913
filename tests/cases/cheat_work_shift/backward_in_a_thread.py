"""Its backward's work, 20 ms, is done by a thread that the forward leaves behind; the claim covers neither.

Attack surface: time between the phases that nobody counts.
Why it fails: the backward waits for the thread, and all of that but the milliseconds between both is timed.
"""

import threading
import time

import torch
from torch import nn


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        ctx.work = threading.Thread(target=time.sleep, args=(0.02,))
        ctx.work.start()
        return y.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.work.join()
        return grad.clone()


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return Shifted.apply(torch.relu(x * self.scale + self.bias))
