"""Divides by the predictions plus an epsilon in the backward."""

import torch
from torch import nn


class Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predictions, targets):
        ctx.save_for_backward(predictions, targets)
        return (torch.xlogy(targets, targets) - targets * predictions.log()).sum() / predictions.shape[0]

    @staticmethod
    def backward(ctx, grad):
        predictions, targets = ctx.saved_tensors
        grad = grad / predictions.shape[0]
        return -grad * targets / (predictions + 1e-6), grad * (targets.log() + 1 - predictions.log())


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return Divergence.apply(predictions, targets)
