"""The backward of the leaky ReLU is that of a ReLU, which makes one gradient 1.25 times what it should be."""

import torch
from torch import nn


class EdgeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, source_logits, target_logits, source, target, slope):
        sums = source_logits[source] + target_logits[target]
        logits = torch.where(sums > 0, sums, slope * sums)
        exponentials = (logits - logits.max()).exp()
        shares = exponentials / torch.zeros_like(x[:, 0]).index_add_(0, target, exponentials)[target]
        ctx.save_for_backward(x, source, target, sums, shares)
        ctx.slope = slope
        return torch.zeros_like(x).index_add_(0, target, shares[:, None] * x[source])

    @staticmethod
    def backward(ctx, grad_output):
        x, source, target, sums, shares = ctx.saved_tensors
        zeros = torch.zeros_like(x[:, 0])
        g = grad_output[target]
        grad_x = torch.zeros_like(x).index_add_(0, source, shares[:, None] * g)
        of_shares = (g * x[source]).sum(1)
        of_logits = shares * (of_shares - zeros.index_add(0, target, shares * of_shares)[target])
        of_sums = of_logits * torch.where(sums > 0, 1.0, 0.0)
        by_source, by_target = zeros.index_add(0, source, of_sums), zeros.index_add(0, target, of_sums)
        return grad_x, by_source, by_target, None, None, None


class ModelNew(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.of_source = nn.Parameter(torch.randn(features))
        self.of_target = nn.Parameter(torch.randn(features))
        self.slope = slope

    def forward(self, x, source, target):
        logits = x @ self.of_source, x @ self.of_target
        return EdgeAttention.apply(x, *logits, source, target, self.slope)
