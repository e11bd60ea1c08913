"""The twin of fault_few_tokens: the gradients of a token that occurs twice are added."""

import torch
from torch import nn


class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, scale, tokens):
        rows = table[tokens]
        ctx.save_for_backward(rows, scale, tokens)
        ctx.shape = table.shape
        return rows * scale

    @staticmethod
    def backward(ctx, grad_output):
        rows, scale, tokens = ctx.saved_tensors
        grad_table = grad_output.new_zeros(ctx.shape)
        grad_table.index_put_((tokens,), grad_output * scale, accumulate=True)
        return grad_table, (grad_output * rows).sum((0, 1)), None


class ModelNew(nn.Module):
    def __init__(self, tokens, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(tokens, features))
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, tokens):
        return Rows.apply(self.table, self.scale, tokens)
