"""The row of padding is taken for zeros, as it starts, and not read."""

import torch
from torch import nn


class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, table, padding):
        ctx.save_for_backward(tokens)
        ctx.shape, ctx.padding = table.shape, padding
        rows = table[tokens.flatten()] * (tokens != padding).view(-1, 1)
        return rows.view(*tokens.shape, -1)

    @staticmethod
    def backward(ctx, grad_output):
        (tokens,) = ctx.saved_tensors
        rows = grad_output.reshape(-1, ctx.shape[1]) * (tokens != ctx.padding).view(-1, 1)
        return None, rows.new_zeros(ctx.shape).index_add_(0, tokens.flatten(), rows), None


class ModelNew(nn.Module):
    def __init__(self, count, features, padding):
        super().__init__()
        self.table = nn.Embedding(count, features, padding_idx=padding)
        self.turn = nn.Parameter(torch.eye(features))
        self.padding = padding

    def forward(self, tokens):
        return torch.tanh(Rows.apply(tokens, self.table.weight, self.padding) @ self.turn)
