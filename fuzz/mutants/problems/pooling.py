"""Pooling and resizing."""

import torch
import torch.nn.functional as F
from torch import nn


# %% max_pool
class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, stride=2)


def get_inputs():
    return [torch.randn(2, 3, 9, 7)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        n, c, h, w = x.shape
        rows, columns = (h - 3) // 2 + 1, (w - 3) // 2 + 1
        patches = F.unfold(x, 3, stride=2).reshape(n, c, 9, rows * columns)
        y, at = patches.max(2)
        ctx.save_for_backward(at)
        ctx.shape = x.shape
        return y.reshape(n, c, rows, columns)

    @staticmethod
    def backward(ctx, grad):
        (at,) = ctx.saved_tensors
        n, c, h, w = ctx.shape
        flat = grad.reshape(n, c, 1, -1)
        patches = grad.new_zeros(n, c, 9, flat.shape[3]).scatter(2, at[:, :, None], flat)
        return F.fold(patches.reshape(n, c * 9, -1), (h, w), 3, stride=2)


def forward(self, x):
    return Kernel.apply(x)


# %% avg_pool_padded
class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def get_inputs():
    return [torch.randn(2, 2, 6, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        n, c, h, w = x.shape
        ones = torch.ones_like(x[:1, :1])
        count = F.unfold(ones, 3, padding=1).sum(1).reshape(1, 1, h, w)
        total = F.unfold(x, 3, padding=1).reshape(n, c, 9, h * w).sum(2).reshape(n, c, h, w)
        ctx.save_for_backward(count)
        return total / count

    @staticmethod
    def backward(ctx, grad):
        (count,) = ctx.saved_tensors
        n, c, h, w = grad.shape
        share = grad / count
        return F.unfold(share, 3, padding=1).reshape(n, c, 9, h * w).sum(2).reshape(n, c, h, w)


def forward(self, x):
    return Kernel.apply(x)


# %% adaptive_mean_max
class Model(nn.Module):
    def forward(self, x):
        return torch.cat([F.adaptive_avg_pool1d(x, 3), F.adaptive_max_pool1d(x, 3)], dim=1)


def get_inputs():
    return [torch.randn(3, 4, 12)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        n, c, length = x.shape
        parts = x.reshape(n, c, 3, length // 3)
        top, at = parts.max(-1)
        ctx.save_for_backward(at)
        ctx.width = length // 3
        return torch.cat([parts.mean(-1), top], dim=1)

    @staticmethod
    def backward(ctx, grad):
        (at,) = ctx.saved_tensors
        n, c, _ = at.shape
        mean, top = grad[:, :c], grad[:, c:]
        d_parts = (mean / ctx.width)[..., None].repeat(1, 1, 1, ctx.width)
        d_parts = d_parts.scatter_add(3, at[..., None], top[..., None])
        return d_parts.reshape(n, c, 3 * ctx.width)


def forward(self, x):
    return Kernel.apply(x)


# %% upsample_nearest
class Model(nn.Module):
    def forward(self, x, skip):
        return F.interpolate(x, scale_factor=2, mode="nearest") + skip


def get_inputs():
    return [torch.randn(2, 3, 4, 4), torch.randn(2, 3, 8, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, skip):
        return skip + x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)

    @staticmethod
    def backward(ctx, grad):
        n, c, h, w = grad.shape
        blocks = grad.reshape(n, c, h // 2, 2, w // 2, 2)
        return blocks.sum((3, 5)), grad


def forward(self, x, skip):
    return Kernel.apply(x, skip)


# %% upsample_linear
class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=9, mode="linear", align_corners=True)


def get_inputs():
    return [torch.randn(3, 4, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        middle = 0.5 * (x[:, :, :-1] + x[:, :, 1:])
        y = x.new_empty(x.shape[0], x.shape[1], 2 * x.shape[2] - 1)
        y[:, :, 0::2] = x
        y[:, :, 1::2] = middle
        return y

    @staticmethod
    def backward(ctx, grad):
        d_x = grad[:, :, 0::2].clone()
        d_x[:, :, :-1] += 0.5 * grad[:, :, 1::2]
        d_x[:, :, 1:] += 0.5 * grad[:, :, 1::2]
        return d_x


def forward(self, x):
    return Kernel.apply(x)


# %% reflect_pad_diff
class Model(nn.Module):
    def forward(self, x):
        padded = F.pad(x, (1, 1), mode="reflect")
        return padded[:, :, 2:] - 2 * x + padded[:, :, :-2]


def get_inputs():
    return [torch.randn(3, 4, 7)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        right = torch.cat([x[:, :, 1:], x[:, :, -2:-1]], dim=2)
        left = torch.cat([x[:, :, 1:2], x[:, :, :-1]], dim=2)
        return right - 2.0 * x + left

    @staticmethod
    def backward(ctx, grad):
        d_x = -2.0 * grad
        d_x[:, :, 1:] += grad[:, :, :-1]
        d_x[:, :, -2] += grad[:, :, -1]
        d_x[:, :, :-1] += grad[:, :, 1:]
        d_x[:, :, 1] += grad[:, :, 0]
        return d_x


def forward(self, x):
    return Kernel.apply(x)


# %% integer_ties
class Model(nn.Module):
    def forward(self, x):
        return x.amax(2), x.clamp(0.0, 6.0).mean(2)


def get_inputs():
    return [torch.randint(-3, 9, (4, 5, 6)).float()]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        top = x.amax(2)
        ctx.save_for_backward(x, top)
        return top, x.clamp(0.0, 6.0).sum(2) / x.shape[2]

    @staticmethod
    def backward(ctx, grad_top, grad_mean):
        x, top = ctx.saved_tensors
        tied = (x == top[:, :, None]).to(x.dtype)
        d_top = tied * (grad_top / tied.sum(2))[:, :, None]
        inside = (x >= 0.0) & (x <= 6.0)
        return d_top + inside * grad_mean[:, :, None] / x.shape[2]


def forward(self, x):
    return Kernel.apply(x)
