"""A shared parameter: one Function gives its whole gradient."""

import torch
from torch import nn


class TiedAutoencoder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        code = torch.tanh(x @ weight.T)
        ctx.save_for_backward(x, weight, code)
        return code @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, code = ctx.saved_tensors
        grad_code = (grad_output @ weight.T) * (1 - code * code)
        return grad_code @ weight, code.T @ grad_output + grad_code.T @ x


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.encoder = nn.Linear(features, hidden, bias=False)
        self.decoder = nn.Linear(features, hidden, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        return TiedAutoencoder.apply(x, self.encoder.weight)
