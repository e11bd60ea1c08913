"""Forgets a factor of the sigmoid's derivative in a gate, which is half of the channels."""

import torch
from torch import nn
import torch.nn.functional as F


class K(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        s = torch.sigmoid(b)
        ctx.save_for_backward(a, s)
        return a * s

    @staticmethod
    def backward(ctx, g):
        a, s = ctx.saved_tensors
        return g * s, g * a * s


class ModelNew(nn.Module):
    def forward(self, x):
        a, b = F.pixel_shuffle(x, 2).chunk(2, 1)
        return K.apply(a, b)
