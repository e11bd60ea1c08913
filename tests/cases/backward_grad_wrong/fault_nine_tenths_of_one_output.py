"""The gradient takes one output at nine tenths of its weight."""

import torch
from torch import nn


class LossAndProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        logarithms = x - x.logsumexp(-1, keepdim=True)
        p = logarithms.exp()
        ctx.save_for_backward(p, target)
        return -logarithms.gather(-1, target[:, None]).mean(), p.clone()

    @staticmethod
    def backward(ctx, grad_loss, grad_p):
        p, target = ctx.saved_tensors
        grad = p.clone()
        grad[torch.arange(len(p)), target] -= 1
        grad = grad * (grad_loss / len(p)) + 0.9 * p * (grad_p - (grad_p * p).sum(-1, keepdim=True))
        return grad, None


class ModelNew(nn.Module):
    def forward(self, x, target):
        return LossAndProbabilities.apply(x, target)
