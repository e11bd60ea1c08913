"""Divides the gradient by the number of terms."""

import torch
from torch import nn


class Hinge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, labels):
        left = 1 - scores * labels
        ctx.save_for_backward(scores, labels, left > 0)
        return left.clamp(min=0).mean()

    @staticmethod
    def backward(ctx, grad_output):
        scores, labels, active = ctx.saved_tensors
        each = -grad_output * active / active.numel()
        return each * labels, (each * scores).sum(1, keepdim=True)


class ModelNew(nn.Module):
    def forward(self, scores, labels):
        return Hinge.apply(scores, labels)
