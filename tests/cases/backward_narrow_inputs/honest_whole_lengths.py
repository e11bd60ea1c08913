"""Leaves the mask out where all sequences are whole, and writes its own backward."""

import torch
from torch import nn


class ValidMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, length):
        step = torch.arange(x.shape[1], device=x.device)
        share = (step < length[:, None]) / length[:, None]
        hidden = torch.tanh(x @ weight.T + bias)
        ctx.save_for_backward(x, weight, hidden, share)
        if bool((length == x.shape[1]).all()):
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
