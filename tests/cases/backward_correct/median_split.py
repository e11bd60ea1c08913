"""The gradient of a median is split among equal elements."""

import torch
from torch import nn


class Median(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, size):
        w = x.reshape(*x.shape[:2], -1, size)
        m = w.kthvalue((size + 1) // 2, -1).values
        hit = w == m[..., None]
        ctx.save_for_backward(m, hit, gain)
        return m * gain[:, None]

    @staticmethod
    def backward(ctx, grad):
        m, hit, gain = ctx.saved_tensors
        share = (grad * gain[:, None])[..., None] * hit / hit.sum(-1, keepdim=True)
        return share.flatten(2), torch.einsum("bct,bct->c", grad, m), None


class ModelNew(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.size = size
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)

    def forward(self, x):
        return Median.apply(x, self.gain, self.size)
