"""Adds four partial sums and then the losses that remain."""

import torch
from torch import nn

DELTA = 0.5


class HuberMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predictions, targets):
        difference = predictions - targets
        ctx.save_for_backward(difference)
        size = difference.abs()
        losses = torch.where(size < DELTA, 0.5 * difference * difference, DELTA * (size - 0.5 * DELTA)).view(-1)
        vectors = losses.numel() // 4
        four = losses[: 4 * vectors].view(vectors, 4).sum(0)
        return (four.sum() + losses[4 * vectors :].sum()) / losses.numel()

    @staticmethod
    def backward(ctx, grad):
        (difference,) = ctx.saved_tensors
        grad = difference.clamp(-DELTA, DELTA) * (grad / difference.numel())
        return grad, -grad


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return HuberMean.apply(predictions, targets)
