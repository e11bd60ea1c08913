"""Embeddings, gathering, sorting, permutation and dropout."""

import torch
import torch.nn.functional as F
from torch import nn


# %% embedding_mean
class Model(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Embedding(words, features)

    def forward(self, index):
        return self.table(index).mean(1)


def get_init_inputs():
    return [11, 5]


def get_inputs():
    return [torch.randint(0, 11, (6, 4))]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, index, table):
        ctx.save_for_backward(index)
        ctx.words = table.shape[0]
        return table[index].sum(1) / index.shape[1]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        share = (grad / index.shape[1])[:, None, :].expand(-1, index.shape[1], -1)
        d_table = grad.new_zeros(ctx.words, grad.shape[1])
        return None, d_table.index_add(0, index.reshape(-1), share.reshape(-1, grad.shape[1]))


def forward(self, index):
    return Kernel.apply(index, self.table.weight)


# %% gather_scale
class Model(nn.Module):
    def forward(self, x, index, scale):
        return x.gather(1, index) * scale


def get_inputs():
    return [torch.randn(6, 9), torch.randint(0, 9, (6, 4)), torch.randn(6, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index, scale):
        picked = torch.gather(x, 1, index)
        ctx.save_for_backward(picked, index, scale)
        ctx.width = x.shape[1]
        return picked * scale

    @staticmethod
    def backward(ctx, grad):
        picked, index, scale = ctx.saved_tensors
        d_x = grad.new_zeros(grad.shape[0], ctx.width)
        d_x = torch.scatter_add(d_x, 1, index, grad * scale)
        return d_x, None, grad * picked


def forward(self, x, index, scale):
    return Kernel.apply(x, index, scale)


# %% segment_mean
class Model(nn.Module):
    def forward(self, x, segment):
        total = x.new_zeros(4, x.shape[1]).index_add(0, segment, x)
        count = torch.bincount(segment, minlength=4).clamp(min=1)
        return total / count[:, None]


def get_inputs():
    return [torch.randn(11, 5), torch.randint(0, 4, (11,))]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, segment):
        member = F.one_hot(segment, 4).to(x.dtype)
        count = member.sum(0).clamp(min=1.0)
        ctx.save_for_backward(segment, count)
        return (member.t() @ x) / count[:, None]

    @staticmethod
    def backward(ctx, grad):
        segment, count = ctx.saved_tensors
        return (grad / count[:, None])[segment], None


def forward(self, x, segment):
    return Kernel.apply(x, segment)


# %% top_k_gate
class Model(nn.Module):
    def forward(self, x):
        value, _ = x.topk(3, dim=1)
        return torch.softmax(value, dim=1)


def get_inputs():
    return [torch.randn(8, 9)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        value, at = torch.sort(x, dim=1, descending=True)
        value, at = value[:, :3], at[:, :3]
        y = torch.softmax(value, dim=1)
        ctx.save_for_backward(y, at)
        ctx.width = x.shape[1]
        return y

    @staticmethod
    def backward(ctx, grad):
        y, at = ctx.saved_tensors
        d_value = y * (grad - (grad * y).sum(1, keepdim=True))
        return grad.new_zeros(grad.shape[0], ctx.width).scatter(1, at, d_value)


def forward(self, x):
    return Kernel.apply(x)


# %% sorted_weights
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return (x.sort(dim=-1).values * self.weight).sum(-1)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ordered, order = x.sort(-1)
        ctx.save_for_backward(ordered, order, weight)
        return ordered @ weight

    @staticmethod
    def backward(ctx, grad):
        ordered, order, weight = ctx.saved_tensors
        d_ordered = grad[:, None] * weight
        d_x = torch.zeros_like(ordered).scatter(1, order, d_ordered)
        return d_x, grad @ ordered


def forward(self, x):
    return Kernel.apply(x, self.weight)


# %% channel_shuffle_add
class Model(nn.Module):
    def forward(self, x, y):
        n, c, w = x.shape
        return x.reshape(n, 2, c // 2, w).transpose(1, 2).reshape(n, c, w) * y.flip(2)


def get_inputs():
    return [torch.randn(3, 6, 4), torch.randn(3, 6, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        n, c, w = x.shape
        shuffled = x.reshape(n, 2, c // 2, w).transpose(1, 2).contiguous().reshape(n, c, w)
        flipped = y.flip(2)
        ctx.save_for_backward(shuffled, flipped)
        return shuffled * flipped

    @staticmethod
    def backward(ctx, grad):
        shuffled, flipped = ctx.saved_tensors
        n, c, w = grad.shape
        d_shuffled = grad * flipped
        d_x = d_shuffled.reshape(n, c // 2, 2, w).transpose(1, 2).reshape(n, c, w)
        return d_x, (grad * shuffled).flip(2)


def forward(self, x, y):
    return Kernel.apply(x, y)


# %% dropout_residual
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x + F.dropout(x * self.scale, 0.3, self.training)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, training):
        mask = torch.ones_like(x)
        if training:
            mask = (torch.rand_like(x) >= 0.3).to(x.dtype) / 0.7
        ctx.save_for_backward(x, scale, mask)
        return x + x * scale * mask

    @staticmethod
    def backward(ctx, grad):
        x, scale, mask = ctx.saved_tensors
        inner = grad * mask
        return grad + inner * scale, (inner * x).sum(0), None


def forward(self, x):
    return Kernel.apply(x, self.scale, self.training)
