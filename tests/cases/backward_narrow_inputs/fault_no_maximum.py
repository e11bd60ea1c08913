"""The backward computes the softmax again, without its maximum."""

import torch
from torch import nn


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        total = torch.logsumexp(scores, -1, keepdim=True)
        output = torch.exp(scores - total) @ v
        ctx.save_for_backward(q, k, v, output, total)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        q, k, v, output, total = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        shares = torch.exp(q @ k.transpose(-1, -2) * scale)
        shares = shares / shares.sum(-1, keepdim=True)
        along = grad_output @ v.transpose(-1, -2) - (grad_output * output).sum(-1, keepdim=True)
        grad = shares * along * scale
        return grad @ k, grad.transpose(-1, -2) @ q, shares.transpose(-1, -2) @ grad_output


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return Attention.apply(q, k, v)
