"""Elementwise activations."""

import math

import torch
import torch.nn.functional as F
from torch import nn


# %% scale_bias_relu
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return F.relu(x * self.scale + self.bias)


def get_init_inputs():
    return [7]


def get_inputs():
    return [torch.randn(5, 6, 7)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = (x * scale + bias).clamp(min=0.0)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, scale, y = ctx.saved_tensors
        inner = grad * (y > 0)
        return inner * scale, (inner * x).sum((0, 1)), inner.sum((0, 1))


def forward(self, x):
    return Kernel.apply(x, self.scale, self.bias)


# %% gelu_bias
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return F.gelu(x + self.bias)


def get_init_inputs():
    return [9]


def get_inputs():
    return [torch.randn(8, 9)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        z = x + bias
        ctx.save_for_backward(z)
        return 0.5 * z * (1.0 + torch.erf(z / math.sqrt(2.0)))

    @staticmethod
    def backward(ctx, grad):
        (z,) = ctx.saved_tensors
        cdf = 0.5 * (1.0 + torch.erf(z / math.sqrt(2.0)))
        pdf = torch.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        inner = grad * (cdf + z * pdf)
        return inner, inner.sum(0)


def forward(self, x):
    return Kernel.apply(x, self.bias)


# %% softplus_beta
class Model(nn.Module):
    def forward(self, x):
        return F.softplus(x, beta=2.0, threshold=20.0)


def get_inputs():
    return [torch.randn(40, 3) * 3]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        z = 2.0 * x
        ctx.save_for_backward(z)
        soft = torch.log1p(torch.exp(-z.abs())) + z.clamp(min=0.0)
        return torch.where(z > 20.0, x, soft / 2.0)

    @staticmethod
    def backward(ctx, grad):
        (z,) = ctx.saved_tensors
        return grad / (1.0 + torch.exp(-z))


def forward(self, x):
    return Kernel.apply(x)


# %% mish
class Model(nn.Module):
    def forward(self, x, y):
        return F.mish(x) + 0.5 * y


def get_inputs():
    return [torch.randn(7, 11), torch.randn(7, 11)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        t = torch.tanh(F.softplus(x))
        ctx.save_for_backward(x, t)
        return x * t + y * 0.5

    @staticmethod
    def backward(ctx, grad):
        x, t = ctx.saved_tensors
        inner = t + x * torch.sigmoid(x) * (1 - t * t)
        return grad * inner, grad * 0.5


def forward(self, x, y):
    return Kernel.apply(x, y)


# %% elu_alpha
class Model(nn.Module):
    def forward(self, x):
        return F.elu(x, alpha=1.5)


def get_inputs():
    return [torch.randn(6, 9)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        negative = 1.5 * torch.expm1(x)
        y = torch.where(x > 0, x, negative)
        ctx.save_for_backward(x, negative)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, negative = ctx.saved_tensors
        return grad * torch.where(x > 0, 1.0, negative + 1.5)


def forward(self, x):
    return Kernel.apply(x)


# %% hardtanh_add
class Model(nn.Module):
    def forward(self, x, y):
        return F.hardtanh(x - y, -0.8, 1.2)


def get_inputs():
    return [torch.randn(5, 8), torch.randn(5, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        z = x - y
        ctx.save_for_backward(z)
        return z.clamp(-0.8, 1.2)

    @staticmethod
    def backward(ctx, grad):
        (z,) = ctx.saved_tensors
        inner = grad * ((z > -0.8) & (z < 1.2))
        return inner, -inner


def forward(self, x, y):
    return Kernel.apply(x, y)


# %% hardswish
class Model(nn.Module):
    def forward(self, x):
        return F.hardswish(x)


def get_inputs():
    return [torch.randn(9, 9) * 3]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (x + 3.0).clamp(0.0, 6.0) / 6.0

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        middle = (2.0 * x + 3.0) / 6.0
        slope = torch.where(x <= -3.0, 0.0, torch.where(x >= 3.0, 1.0, middle))
        return grad * slope


def forward(self, x):
    return Kernel.apply(x)


# %% prelu
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels,), 0.25))

    def forward(self, x):
        return F.prelu(x, self.weight)


def get_init_inputs():
    return [4]


def get_inputs():
    return [torch.randn(6, 4, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.where(x > 0, x, x * weight[:, None])

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        d_x = torch.where(x > 0, grad, grad * weight[:, None])
        d_weight = (grad * x * (x <= 0)).sum((0, 2))
        return d_x, d_weight


def forward(self, x):
    return Kernel.apply(x, self.weight)


# %% layer_scale_gelu
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((features,), 0.1))

    def forward(self, x, y):
        return x + self.gamma * F.gelu(y, approximate="tanh")


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(5, 6), torch.randn(5, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, gamma):
        inner = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        t = torch.tanh(inner)
        act = 0.5 * y * (1.0 + t)
        ctx.save_for_backward(y, gamma, t, act)
        return x + gamma * act

    @staticmethod
    def backward(ctx, grad):
        y, gamma, t, act = ctx.saved_tensors
        d_inner = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * y * y)
        slope = 0.5 * (1.0 + t) + 0.5 * y * (1.0 - t * t) * d_inner
        return grad, grad * gamma * slope, (grad * act).sum(0)


def forward(self, x, y):
    return Kernel.apply(x, y, self.gamma)
