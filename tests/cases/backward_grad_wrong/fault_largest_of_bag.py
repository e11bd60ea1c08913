"""Of each sum of exponentials, the gradient goes to the largest element alone."""

import torch
from torch import nn


class MeanOfBags(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, bags):
        rows = table[bags]
        total = torch.logsumexp(rows, 1)
        kept = (bags != 0)[:, :, None].to(rows)
        sizes = kept.sum(1, keepdim=True).clamp(min=1)
        ctx.save_for_backward(rows, bags, total, kept, sizes)
        ctx.count = len(table)
        return (rows * kept / sizes).sum(1), total

    @staticmethod
    def backward(ctx, grad_mean, grad_total):
        rows, bags, total, kept, sizes = ctx.saved_tensors
        shares = torch.zeros_like(rows).scatter(1, rows.argmax(1, keepdim=True), 1.0)
        grad_rows = grad_mean[:, None] * kept / sizes + grad_total[:, None] * shares
        grad_table = rows.new_zeros(ctx.count, rows.shape[2])
        return grad_table.index_add_(0, bags.flatten(), grad_rows.flatten(0, 1)), None


class ModelNew(nn.Module):
    def __init__(self, count, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(count, features))

    def forward(self, bags):
        return MeanOfBags.apply(self.table, bags)
