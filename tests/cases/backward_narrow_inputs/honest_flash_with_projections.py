"""Flash attention's backward: exp(score - logsumexp), whose rows add up to 1 but for the rounding of large scores."""

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
    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(features, features) for _ in range(3))
        self.out = nn.Linear(features, features)

    def forward(self, x):
        q, k, v = (of(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for of in self.qkv)
        return self.out(Flash.apply(q, k, v).transpose(1, 2).flatten(2))
