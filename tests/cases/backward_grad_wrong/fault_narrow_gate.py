"""Squeeze and excite; the gradient through the gate is that of a sum."""

import torch
from torch import nn


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, squeeze, squeeze_bias, excite, excite_bias):
        means = x.square().mean(1)
        hidden = (means @ squeeze.t() + squeeze_bias).clamp(min=0)
        gate = torch.sigmoid(hidden @ excite.t() + excite_bias)
        ctx.save_for_backward(x, squeeze, excite, means, hidden, gate)
        return x * gate[:, None]

    @staticmethod
    def backward(ctx, grad_output):
        x, squeeze, excite, means, hidden, gate = ctx.saved_tensors
        grad_logits = (grad_output * x).sum(1) * gate * (1 - gate)
        grad_hidden = (grad_logits @ excite) * (hidden > 0)
        grad_means = grad_hidden @ squeeze
        grad_x = grad_output * gate[:, None] + grad_means[:, None] * 2 * x
        grad_squeeze = grad_hidden.t() @ means, grad_hidden.sum(0)
        return grad_x, *grad_squeeze, grad_logits.t() @ hidden, grad_logits.sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.squeeze = nn.Linear(features, 1)
        self.excite = nn.Linear(1, features)

    def forward(self, x):
        return Gate.apply(x, self.squeeze.weight, self.squeeze.bias, self.excite.weight, self.excite.bias)
