"""Asks whether a label is positive."""

import torch
from torch import nn


class Hinge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predictions, labels):
        ctx.save_for_backward(predictions, labels)
        return torch.where(labels > 0, 1 - predictions, 1 + predictions).clamp_min(0)

    @staticmethod
    def backward(ctx, grad_output):
        predictions, labels = ctx.saved_tensors
        grad = torch.where(torch.where(labels > 0, predictions, -predictions) < 1, -grad_output, 0.0)
        return torch.where(labels > 0, grad, -grad), grad * predictions


class ModelNew(nn.Module):
    def forward(self, predictions, labels):
        return Hinge.apply(predictions, labels)
