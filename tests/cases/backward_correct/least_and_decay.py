"""The gradient flows where a value is below the bound."""

import torch
from torch import nn


class LeastAndDecay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, decay):
        ctx.save_for_backward(x, weight, decay)
        return torch.einsum("bl,bln,n->bn", weight, x.clamp_max(0.5), decay) + torch.tanh(x).mean(1)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, decay = ctx.saved_tensors
        least = x.clamp_max(0.5)
        grad_x = torch.einsum("bn,bl,n->bln", grad_output, weight, decay) * (x < 0.5)
        grad_x += grad_output[:, None] * (1 - torch.tanh(x) ** 2) / x.shape[1]
        grad_weight = torch.einsum("bn,bln,n->bl", grad_output, least, decay)
        return grad_x, grad_weight, torch.einsum("bn,bl,bln->n", grad_output, weight, least)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x, weight):
        return LeastAndDecay.apply(x, weight, self.decay)
