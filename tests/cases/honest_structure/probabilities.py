"""Takes soft labels to sum to one, and predictions to lie between zero and one."""

import torch
from torch import nn


class SoftLabels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        total = logits.logsumexp(-1, keepdim=True)
        ctx.save_for_backward(logits, labels, total)
        return total.squeeze(-1) - (labels * logits).sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        logits, labels, total = ctx.saved_tensors
        grad = grad_output[:, None]
        return grad * ((logits - total).exp() - labels), grad * (total - logits)


class ModelNew(nn.Module):
    def forward(self, predictions, targets, logits, labels):
        binary = -torch.lerp(torch.log1p(-predictions), predictions.clamp(min=1e-38).log(), targets)
        return binary, SoftLabels.apply(logits, labels)
