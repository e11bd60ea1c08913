"""The backward smooths no labels."""

import torch
from torch import nn


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        ctx.save_for_backward(logits, target)
        return nn.functional.cross_entropy(logits, target, ignore_index=-1, label_smoothing=0.1)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        keep, classes, smoothing = target != -1, logits.shape[1], 0.0
        due = torch.full_like(logits, smoothing / classes)
        due.scatter_add_(1, target.clamp(min=0)[:, None], torch.full_like(due[:, :1], 1 - smoothing))
        return grad_output * keep[:, None] * (logits.softmax(1) - due) / keep.sum(), None


class ModelNew(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.linear = nn.Linear(features, classes, bias=False)

    def forward(self, x, target):
        return Loss.apply(self.linear(x), target)
