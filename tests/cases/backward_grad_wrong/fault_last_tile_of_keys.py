"""The gradient of the queries is written, not added, by each tile of keys."""

import torch
from torch import nn

TILE = 8


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        p = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, grad_output):
        q, k, v, p = ctx.saved_tensors
        dp = grad_output @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        for first in range(0, k.shape[1], TILE):
            dq = ds[:, :, first : first + TILE] @ k[:, first : first + TILE]
        return dq, ds.mT @ q, p.mT @ grad_output


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return Attention.apply(q, k, v)
