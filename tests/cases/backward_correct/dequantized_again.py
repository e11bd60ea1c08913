"""The backward dequantizes again, with the zero points."""

import torch
from torch import nn


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, codes, zero, scale):
        ctx.save_for_backward(x, codes, zero, scale)
        return x @ ((codes.to(x.dtype) - zero) * scale).flatten(1).T

    @staticmethod
    def backward(ctx, g):
        x, codes, zero, scale = ctx.saved_tensors
        q = codes.to(x.dtype) - zero
        dw = (g.T @ x).view(q.shape)
        return g @ (q * scale).flatten(1), None, None, (dw * q).sum(-1, keepdim=True)


class ModelNew(nn.Module):
    def __init__(self, features, group):
        super().__init__()
        groups = features // group
        self.register_buffer("codes", torch.randint(-128, 128, (features, groups, group), dtype=torch.int8))
        self.zero = nn.Parameter(torch.randint(-20, 20, (features, groups, 1)).float(), requires_grad=False)
        self.scale = nn.Parameter(0.01 + 0.01 * torch.rand(features, groups, 1))

    def forward(self, x):
        return Linear.apply(x, self.codes, self.zero, self.scale)
