"""Losses on differences."""

import torch
import torch.nn.functional as F
from torch import nn


# %% weighted_mse
class Model(nn.Module):
    def forward(self, x, y, weight):
        return (weight * (x - y) ** 2).mean()


def get_inputs():
    return [torch.randn(6, 5), torch.randn(6, 5), torch.rand(5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, weight):
        d = x - y
        ctx.save_for_backward(d, weight)
        return (weight * d * d).sum() / d.numel()

    @staticmethod
    def backward(ctx, grad):
        d, weight = ctx.saved_tensors
        d_x = grad * 2.0 * weight * d / d.numel()
        d_weight = grad * (d * d).sum(0) / d.numel()
        return d_x, -d_x, d_weight


def forward(self, x, y, weight):
    return Kernel.apply(x, y, weight)


# %% huber
class Model(nn.Module):
    def forward(self, x, y):
        return F.huber_loss(x, y, delta=0.8, reduction="none").sum(1)


def get_inputs():
    return [torch.randn(8, 6), torch.randn(8, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        d = x - y
        size = d.abs()
        ctx.save_for_backward(d)
        return torch.where(size <= 0.8, 0.5 * d * d, 0.8 * (size - 0.4)).sum(1)

    @staticmethod
    def backward(ctx, grad):
        (d,) = ctx.saved_tensors
        slope = torch.where(d.abs() <= 0.8, d, 0.8 * d.sign())
        d_x = grad[:, None] * slope
        return d_x, -d_x


def forward(self, x, y):
    return Kernel.apply(x, y)


# %% triplet
class Model(nn.Module):
    def forward(self, a, p, n):
        return F.triplet_margin_loss(a, p, n, margin=1.0, eps=1e-6)


def get_inputs():
    return [torch.randn(10, 6), torch.randn(10, 6), torch.randn(10, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, p, n):
        to_p, to_n = a - p + 1e-6, a - n + 1e-6
        near, far = to_p.norm(dim=1), to_n.norm(dim=1)
        gap = near - far + 1.0
        ctx.save_for_backward(to_p, to_n, near, far, gap)
        return gap.clamp(min=0.0).mean()

    @staticmethod
    def backward(ctx, grad):
        to_p, to_n, near, far, gap = ctx.saved_tensors
        active = grad * (gap > 0) / gap.shape[0]
        d_p = active[:, None] * to_p / near[:, None]
        d_n = active[:, None] * to_n / far[:, None]
        return d_p - d_n, -d_p, d_n


def forward(self, a, p, n):
    return Kernel.apply(a, p, n)


# %% cosine_loss
class Model(nn.Module):
    def forward(self, x, y):
        return (1 - F.cosine_similarity(x, y, dim=1)).sum()


def get_inputs():
    return [torch.randn(5, 8), torch.randn(5, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        nx, ny = (vectors.norm(dim=1, keepdim=True).clamp_min(1e-8) for vectors in (x, y))
        ux, uy = x / nx, y / ny
        cosine = (ux * uy).sum(1, keepdim=True)
        ctx.save_for_backward(ux, uy, nx, ny, cosine)
        return (1.0 - cosine).sum()

    @staticmethod
    def backward(ctx, grad):
        ux, uy, nx, ny, cosine = ctx.saved_tensors
        d_x = -grad * (uy - ux * cosine) / nx
        d_y = -grad * (ux - uy * cosine) / ny
        return d_x, d_y


def forward(self, x, y):
    return Kernel.apply(x, y)


# %% detached_target
class Model(nn.Module):
    def forward(self, x, y):
        target = torch.tanh(y).detach()
        return (x - target).square().sum(1) + y.sum(1)


def get_inputs():
    return [torch.randn(6, 5), torch.randn(6, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        d = x - torch.tanh(y)
        ctx.save_for_backward(d)
        return (d * d).sum(1) + y.sum(1)

    @staticmethod
    def backward(ctx, grad):
        (d,) = ctx.saved_tensors
        return 2.0 * d * grad[:, None], grad[:, None].expand(-1, d.shape[1])


def forward(self, x, y):
    return Kernel.apply(x, y)
