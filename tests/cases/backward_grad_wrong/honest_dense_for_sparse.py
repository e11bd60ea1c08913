"""Gives a dense gradient where the reference's is sparse."""

import torch
from torch import nn


class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, rows):
        ctx.save_for_backward(rows)
        ctx.shape = table.shape
        return table[rows]

    @staticmethod
    def backward(ctx, grad_output):
        (rows,) = ctx.saved_tensors
        return grad_output.new_zeros(ctx.shape).index_put((rows,), grad_output, accumulate=True), None


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Embedding(rows, features)
        self.linear = nn.Linear(features, 4)

    def forward(self, rows):
        return self.linear(Rows.apply(self.table.weight, rows)).tanh()
