"""The last bag has no gradient."""

import torch
from torch import nn


class Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, starts, table):
        lengths = torch.diff(starts, append=starts.new_tensor([rows.numel()]))
        bags = torch.arange(len(starts), device=rows.device).repeat_interleave(lengths)
        ctx.save_for_backward(rows, bags, table)
        return table.new_zeros(len(starts), table.shape[1]).index_add(0, bags, table[rows])

    @staticmethod
    def backward(ctx, grad_output):
        rows, bags, table = ctx.saved_tensors
        grad_output = torch.cat([grad_output[:-1], torch.zeros_like(grad_output[-1:])])
        return None, None, torch.zeros_like(table).index_add(0, rows, grad_output[bags])


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, features))

    def forward(self, rows, starts):
        return Sums.apply(rows, starts, self.table)
