"""The backward leaves out the epsilon of the forward."""

import torch
from torch import nn

EPSILON = 1e-2


class Cosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        norms = a.norm(dim=1).clamp(min=EPSILON) * b.norm(dim=1).clamp(min=EPSILON)
        return (a * b).sum(1) / norms

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        of_a, of_b = a.norm(dim=1, keepdim=True), b.norm(dim=1, keepdim=True)
        cosine = (a * b).sum(1, keepdim=True) / (of_a * of_b)
        g = grad_output[:, None]
        return g * (b / (of_a * of_b) - cosine * a / of_a**2), g * (a / (of_a * of_b) - cosine * b / of_b**2)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return Cosine.apply(a, b)
