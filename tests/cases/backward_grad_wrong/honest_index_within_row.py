"""The maximum of blocks, with the index in the whole row kept for the backward."""

import torch
from torch import nn

BLOCK = 128


class BlockMaximum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        largest, within = x.view(len(x), -1, BLOCK).max(2)
        best, block = largest.max(1, keepdim=True)
        ctx.save_for_backward(block * BLOCK + within.gather(1, block))
        ctx.shape = x.shape
        return best.squeeze(1)

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        return grad_output.new_zeros(ctx.shape).scatter_(1, index, grad_output[:, None])


class ModelNew(nn.Module):
    def forward(self, x):
        return BlockMaximum.apply(x)
