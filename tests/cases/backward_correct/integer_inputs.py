"""Integer inputs; the scatter by index_add."""

import torch
from torch import nn


class EmbeddingSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, tokens):
        ctx.save_for_backward(tokens)
        ctx.rows = weight.shape[0]
        return weight[tokens].sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        (tokens,) = ctx.saved_tensors
        grad = grad_output.new_zeros(ctx.rows, grad_output.shape[-1])
        rows = grad_output.unsqueeze(1).expand(-1, tokens.shape[1], -1).reshape(tokens.numel(), -1)
        return grad.index_add(0, tokens.reshape(-1), rows), None


class ModelNew(nn.Module):
    def __init__(self, tokens, features):
        super().__init__()
        self.embedding = nn.Embedding(tokens, features)

    def forward(self, tokens):
        return EmbeddingSum.apply(self.embedding.weight, tokens)
