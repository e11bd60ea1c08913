"""The mean of each plane is a sum of rows' sums, in another order than the reference's."""

import torch
from torch import nn


class PlaneNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        plane = x.flatten(2)
        count = plane.shape[-1]
        mean = x.sum(2).sum(-1)[..., None] / count
        centred = plane - mean
        rstd = torch.rsqrt(centred.square().sum(-1, keepdim=True) / count + eps)
        normed = centred * rstd
        y = torch.tanh(normed * weight[:, None] + bias[:, None])
        ctx.save_for_backward(normed, rstd, weight, y)
        return y.view(x.shape)

    @staticmethod
    def backward(ctx, grad):
        normed, rstd, weight, y = ctx.saved_tensors
        inner = grad.flatten(2) * (1 - y * y)
        grad_weight, grad_bias = (inner * normed).sum((0, 2)), inner.sum((0, 2))
        inner = inner * weight[:, None]
        mean, along = inner.mean(-1, keepdim=True), (inner * normed).mean(-1, keepdim=True)
        return ((inner - mean - normed * along) * rstd).view(grad.shape), grad_weight, grad_bias, None


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x):
        return PlaneNorm.apply(x, self.norm.weight, self.norm.bias, self.norm.eps)
