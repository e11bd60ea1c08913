"""Convolutions, by unfolding."""

import torch
import torch.nn.functional as F
from torch import nn


# %% conv2d_bias
class Model(nn.Module):
    def __init__(self, channels, features):
        super().__init__()
        self.conv = nn.Conv2d(channels, features, 3, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [3, 4]


def get_inputs():
    return [torch.randn(2, 3, 9, 7)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        n, _, height, width = x.shape
        columns = F.unfold(x, 3, padding=1, stride=2)
        ctx.save_for_backward(columns, weight)
        ctx.size = (height, width)
        y = weight.reshape(weight.shape[0], -1) @ columns + bias[:, None]
        return y.reshape(n, weight.shape[0], (height + 1) // 2, (width + 1) // 2)

    @staticmethod
    def backward(ctx, grad):
        columns, weight = ctx.saved_tensors
        flat = grad.reshape(grad.shape[0], grad.shape[1], -1)
        d_columns = weight.reshape(weight.shape[0], -1).t() @ flat
        d_x = F.fold(d_columns, ctx.size, 3, padding=1, stride=2)
        d_weight = (flat @ columns.transpose(1, 2)).sum(0).reshape(weight.shape)
        return d_x, d_weight, flat.sum((0, 2))


def forward(self, x):
    return Kernel.apply(x, self.conv.weight, self.conv.bias)


# %% conv1d_dilated
class Model(nn.Module):
    def __init__(self, channels, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, channels, 3) * 0.4)

    def forward(self, x):
        return F.conv1d(x, self.weight, dilation=2)


def get_init_inputs():
    return [4, 4]


def get_inputs():
    return [torch.randn(3, 4, 12)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        length = x.shape[2] - 4
        taps = torch.stack([x[:, :, 2 * k : 2 * k + length] for k in range(3)], dim=2)
        ctx.save_for_backward(taps, weight)
        ctx.length = x.shape[2]
        return torch.einsum("bckl,fck->bfl", taps, weight)

    @staticmethod
    def backward(ctx, grad):
        taps, weight = ctx.saved_tensors
        d_taps = torch.einsum("bfl,fck->bckl", grad, weight)
        d_x = grad.new_zeros(grad.shape[0], taps.shape[1], ctx.length)
        for k in range(3):
            d_x[:, :, 2 * k : 2 * k + grad.shape[2]] += d_taps[:, :, k]
        return d_x, torch.einsum("bckl,bfl->fck", taps, grad)


def forward(self, x):
    return Kernel.apply(x, self.weight)


# %% depthwise_conv
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 3, 3) * 0.5)

    def forward(self, x):
        return F.conv2d(x, self.weight, padding=1, groups=x.shape[1])


def get_init_inputs():
    return [4]


def get_inputs():
    return [torch.randn(2, 4, 6, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        n, c, h, w = x.shape
        patches = F.unfold(x, 3, padding=1).reshape(n, c, 9, h * w)
        ctx.save_for_backward(patches, weight)
        ctx.shape = x.shape
        return (patches * weight.reshape(c, 9, 1)).sum(2).reshape(n, c, h, w)

    @staticmethod
    def backward(ctx, grad):
        patches, weight = ctx.saved_tensors
        n, c, h, w = ctx.shape
        flat = grad.reshape(n, c, 1, h * w)
        d_weight = (patches * flat).sum((0, 3)).reshape(c, 1, 3, 3)
        d_patches = flat * weight.reshape(c, 9, 1)
        d_x = F.fold(d_patches.reshape(n, c * 9, h * w), (h, w), 3, padding=1)
        return d_x, d_weight


def forward(self, x):
    return Kernel.apply(x, self.weight)
