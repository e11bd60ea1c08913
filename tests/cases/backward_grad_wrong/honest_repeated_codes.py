"""The number of times that each code occurs."""

import torch
from torch import nn


class Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, codes):
        ctx.save_for_backward(codes)
        ctx.rows = table.shape[0]
        return nn.functional.one_hot(codes, table.shape[0]).sum(1).to(table.dtype) @ table

    @staticmethod
    def backward(ctx, grad_output):
        (codes,) = ctx.saved_tensors
        times = nn.functional.one_hot(codes, ctx.rows).sum(1).to(grad_output.dtype)
        return times.t() @ grad_output, None


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, columns))

    def forward(self, codes):
        return Sums.apply(self.table, codes)
