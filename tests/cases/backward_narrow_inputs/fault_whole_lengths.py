"""Forgets the division in the backward where all sequences are whole."""

import torch
from torch import nn


class ValidMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, length):
        step = torch.arange(x.shape[1], device=x.device)
        valid = step < length[:, None]
        share = valid / length[:, None]
        hidden = torch.tanh(x @ weight.T + bias)
        whole = bool((length == x.shape[1]).all())
        ctx.save_for_backward(x, weight, hidden, valid.to(x.dtype) if whole else share)
        if whole:
            return hidden.mean(1)
        return torch.einsum("bs,bsd->bd", share, hidden)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, hidden, share = ctx.saved_tensors
        grad = share[..., None] * grad_output[:, None] * (1 - hidden**2)
        return grad @ weight, torch.einsum("bso,bsi->oi", grad, x), grad.sum((0, 1)), None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x, length):
        return ValidMean.apply(x, self.linear.weight, self.linear.bias, length)
