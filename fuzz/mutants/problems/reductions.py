"""Reductions and scans."""

import torch
from torch import nn


# %% variance_rows
class Model(nn.Module):
    def forward(self, x):
        return x.var(1), x.std(0)


def get_inputs():
    return [torch.randn(7, 7)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows, columns = x.shape
        by_row = x - x.mean(1, keepdim=True)
        by_column = x - x.mean(0, keepdim=True)
        variance = by_row.square().sum(1) / (columns - 1)
        deviation = (by_column.square().sum(0) / (rows - 1)).sqrt()
        ctx.save_for_backward(by_row, by_column, deviation)
        return variance, deviation

    @staticmethod
    def backward(ctx, grad_v, grad_s):
        by_row, by_column, deviation = ctx.saved_tensors
        rows, columns = by_row.shape
        d_v = 2.0 * by_row * grad_v[:, None] / (columns - 1)
        d_s = by_column * (grad_s / deviation) / (rows - 1)
        return d_v + d_s


def forward(self, x):
    return Kernel.apply(x)


# %% logsumexp
class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=1)


def get_inputs():
    return [torch.randn(5, 6, 4) * 3]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        top = x.amax(1, keepdim=True)
        y = (x - top).exp().sum(1).log() + top.squeeze(1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad.unsqueeze(1) * (x - y.unsqueeze(1)).exp()


def forward(self, x):
    return Kernel.apply(x)


# %% row_max_shift
class Model(nn.Module):
    def forward(self, x):
        return x.max(dim=1).values, x - x.min(dim=1, keepdim=True).values


def get_inputs():
    return [torch.randn(7, 7)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        high, at_high = x.max(1)
        low, at_low = x.min(1, keepdim=True)
        ctx.save_for_backward(at_high, at_low)
        return high, x - low

    @staticmethod
    def backward(ctx, grad_high, grad_shift):
        at_high, at_low = ctx.saved_tensors
        d_x = grad_shift.scatter_add(1, at_high[:, None], grad_high[:, None])
        return d_x.scatter_add(1, at_low, -grad_shift.sum(1, keepdim=True))


def forward(self, x):
    return Kernel.apply(x)


# %% cumsum_decay
class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x * 0.5, dim=1)


def get_inputs():
    return [torch.randn(4, 8, 3)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 0.5 * torch.cumsum(x, dim=1)

    @staticmethod
    def backward(ctx, grad):
        return 0.5 * grad.flip(1).cumsum(1).flip(1)


def forward(self, x):
    return Kernel.apply(x)


# %% cumprod
class Model(nn.Module):
    def forward(self, x):
        return torch.cumprod(x, dim=1)


def get_inputs():
    return [torch.rand(5, 6) + 0.5]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.cumprod(x, dim=1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        later = (grad * y).flip(1).cumsum(1).flip(1)
        return later / x


def forward(self, x):
    return Kernel.apply(x)


# %% linear_scan
class Model(nn.Module):
    def forward(self, x, decay):
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = torch.sigmoid(decay) * h + x[:, t]
            out.append(h)
        return torch.stack(out, 1)


def get_inputs():
    return [torch.randn(3, 6, 4), torch.randn(4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decay):
        s = torch.sigmoid(decay)
        y = torch.empty_like(x)
        y[:, 0] = x[:, 0]
        for t in range(1, x.shape[1]):
            y[:, t] = s * y[:, t - 1] + x[:, t]
        ctx.save_for_backward(y, s)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, s = ctx.saved_tensors
        d_x = torch.empty_like(y)
        d_x[:, -1] = grad[:, -1]
        for t in range(grad.shape[1] - 2, -1, -1):
            d_x[:, t] = grad[:, t] + s * d_x[:, t + 1]
        d_s = (d_x[:, 1:] * y[:, :-1]).sum((0, 1))
        return d_x, d_s * s * (1 - s)


def forward(self, x, decay):
    return Kernel.apply(x, decay)


# %% lp_pool
class Model(nn.Module):
    def forward(self, x):
        return (x.square().mean((2, 3)) + 1e-3).sqrt()


def get_inputs():
    return [torch.randn(3, 4, 5, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.sqrt(x.square().mean((2, 3)) + 1e-3)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return x * (grad / y)[:, :, None, None] / (x.shape[2] * x.shape[3])


def forward(self, x):
    return Kernel.apply(x)
