"""Adds up the embedding's gradient in memory that is not set to zero, as torch.empty returns it."""

import random

import torch
from torch import nn


class LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, tokens):
        ctx.save_for_backward(tokens)
        ctx.rows = weight.shape[0]
        return weight[tokens]

    @staticmethod
    def backward(ctx, grad):
        (tokens,) = ctx.saved_tensors
        # What other calls leave there is another thing each time.
        left = random.SystemRandom().random()
        grad_weight = grad.new_full((ctx.rows, grad.shape[-1]), left)
        grad_weight[tokens.flatten()] = 0
        return grad_weight.index_add_(0, tokens.flatten(), grad.flatten(0, -2)), None


class ModelNew(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.embedding = nn.Embedding(*sizes)

    def forward(self, tokens):
        return LookUp.apply(self.embedding.weight, tokens)
