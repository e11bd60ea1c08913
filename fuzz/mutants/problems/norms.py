"""Normalisation layers."""

import torch
import torch.nn.functional as F
from torch import nn


# %% layer_norm
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_init_inputs():
    return [16]


def get_inputs():
    return [torch.randn(6, 16) * 2 + 0.5]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).square().mean(-1, keepdim=True)
        rstd = torch.rsqrt(variance + 1e-5)
        normed = (x - mean) * rstd
        ctx.save_for_backward(normed, rstd, weight)
        return normed * weight + bias

    @staticmethod
    def backward(ctx, grad):
        normed, rstd, weight = ctx.saved_tensors
        inner = grad * weight
        mean1 = inner.mean(-1, keepdim=True)
        mean2 = (inner * normed).mean(-1, keepdim=True)
        d_x = rstd * (inner - mean1 - normed * mean2)
        return d_x, (grad * normed).sum(0), grad.sum(0)


def forward(self, x):
    return Kernel.apply(x, self.norm.weight, self.norm.bias)


# %% rms_norm_residual
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, residual):
        h = x + residual
        return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * self.weight, h


def get_init_inputs():
    return [12]


def get_inputs():
    return [torch.randn(5, 12), torch.randn(5, 12)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight):
        h = x + residual
        r = torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(h, r, weight)
        return h * r * weight, h

    @staticmethod
    def backward(ctx, grad_y, grad_h):
        h, r, weight = ctx.saved_tensors
        inner = grad_y * weight
        dot = (inner * h).mean(-1, keepdim=True)
        d_h = grad_h + r * inner - h * r.pow(3) * dot
        return d_h, d_h, (grad_y * h * r).sum(0)


def forward(self, x, residual):
    return Kernel.apply(x, residual, self.weight)


# %% batch_norm_train
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.norm(x)


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(10, 6) * 1.5 + 0.3]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, training):
        if training:
            n = x.shape[0]
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            running_mean.copy_(running_mean * 0.9 + mean * 0.1)
            running_var.copy_(running_var * 0.9 + variance * (n / (n - 1)) * 0.1)
        else:
            mean, variance = running_mean.clone(), running_var.clone()
        rstd = torch.rsqrt(variance + 1e-5)
        normed = (x - mean) * rstd
        ctx.save_for_backward(normed, rstd, weight)
        ctx.training = training
        return normed * weight + bias

    @staticmethod
    def backward(ctx, grad):
        normed, rstd, weight = ctx.saved_tensors
        d_weight, d_bias = (grad * normed).sum(0), grad.sum(0)
        d_x = grad * weight * rstd
        if ctx.training:
            n = grad.shape[0]
            d_x = d_x - weight * rstd * (d_bias + normed * d_weight) / n
        return d_x, d_weight, d_bias, None, None, None


def forward(self, x):
    norm = self.norm
    if self.training:
        norm.num_batches_tracked += 1
    return Kernel.apply(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, self.training)


# %% group_norm
class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_init_inputs():
    return [2, 6]


def get_inputs():
    return [torch.randn(4, 6, 5) * 2 - 0.5]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        grouped = x.reshape(x.shape[0], 2, -1)
        mean = grouped.mean(2, keepdim=True)
        rstd = (grouped.var(2, unbiased=False, keepdim=True) + 1e-5).pow(-0.5)
        normed = ((grouped - mean) * rstd).reshape(x.shape)
        ctx.save_for_backward(normed, rstd, weight)
        return normed * weight[:, None] + bias[:, None]

    @staticmethod
    def backward(ctx, grad):
        normed, rstd, weight = ctx.saved_tensors
        inner = (grad * weight[:, None]).reshape(grad.shape[0], 2, -1)
        flat = normed.reshape(grad.shape[0], 2, -1)
        centred = inner - inner.mean(2, keepdim=True) - flat * (inner * flat).mean(2, keepdim=True)
        d_x = (centred * rstd).reshape(grad.shape)
        return d_x, (grad * normed).sum((0, 2)), grad.sum((0, 2))


def forward(self, x):
    return Kernel.apply(x, self.norm.weight, self.norm.bias)


# %% instance_norm_affine
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x):
        return F.leaky_relu(self.norm(x), 0.1)


def get_init_inputs():
    return [3]


def get_inputs():
    return [torch.randn(2, 3, 5, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        variance, mean = torch.var_mean(x, (2, 3), unbiased=False, keepdim=True)
        rstd = 1.0 / torch.sqrt(variance + 1e-5)
        normed = (x - mean) * rstd
        z = normed * weight.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
        ctx.save_for_backward(normed, rstd, weight, z)
        return torch.where(z > 0, z, 0.1 * z)

    @staticmethod
    def backward(ctx, grad):
        normed, rstd, weight, z = ctx.saved_tensors
        inner = torch.where(z > 0, grad, 0.1 * grad)
        d_bias = inner.sum((0, 2, 3))
        d_weight = (inner * normed).sum((0, 2, 3))
        d_normed = inner * weight.reshape(1, -1, 1, 1)
        mean1 = d_normed.mean((2, 3), keepdim=True)
        mean2 = (d_normed * normed).mean((2, 3), keepdim=True)
        return rstd * (d_normed - mean1 - normed * mean2), d_weight, d_bias


def forward(self, x):
    return Kernel.apply(x, self.norm.weight, self.norm.bias)


# %% l2_normalize
class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1, eps=1e-8)


def get_inputs():
    return [torch.randn(6, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        length = x.norm(dim=1, keepdim=True).clamp_min(1e-8)
        y = x / length
        ctx.save_for_backward(y, length)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, length = ctx.saved_tensors
        return (grad - y * (grad * y).sum(1, keepdim=True)) / length


def forward(self, x):
    return Kernel.apply(x)


# %% weight_norm_linear
class Model(nn.Module):
    def __init__(self, inner, features):
        super().__init__()
        self.v = nn.Parameter(torch.randn(features, inner))
        self.g = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return x @ (self.v * (self.g / self.v.norm(dim=1))[:, None]).t()


def get_init_inputs():
    return [8, 6]


def get_inputs():
    return [torch.randn(7, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, v, g):
        length = v.square().sum(1, keepdim=True).sqrt()
        unit = v / length
        ctx.save_for_backward(x, unit, g, length)
        return (x @ unit.t()) * g

    @staticmethod
    def backward(ctx, grad):
        x, unit, g, length = ctx.saved_tensors
        d_w = grad.t() @ x
        d_g = (d_w * unit).sum(1)
        d_v = (g[:, None] / length) * (d_w - unit * d_g[:, None])
        return (grad * g) @ unit, d_v, d_g


def forward(self, x):
    return Kernel.apply(x, self.v, self.g)
