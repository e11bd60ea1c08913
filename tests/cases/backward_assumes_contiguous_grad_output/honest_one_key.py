"""Two sums that cancel, in an order that follows the layout of grad_output: what is left is rounding."""

import torch
from torch import nn


class Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        lse = scores.logsumexp(-1, keepdim=True)
        y = torch.exp(scores - lse) @ v
        ctx.save_for_backward(q, k, v, y, lse)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        q, k, v, y, lse = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        p = torch.exp(q @ k.transpose(-1, -2) * scale - lse)
        delta = (grad_output * y).sum(-1, keepdim=True)
        ds = p * (grad_output @ v.transpose(-1, -2) - delta) * scale
        return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ grad_output


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.q = nn.Linear(features, features)
        self.kv = nn.Linear(features, 2 * features)

    def forward(self, x, memory):
        return Flash.apply(self.q(x), *self.kv(memory).chunk(2, -1))
