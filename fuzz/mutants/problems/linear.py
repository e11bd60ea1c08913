"""Linear layers and products of matrices."""

import torch
import torch.nn.functional as F
from torch import nn


# %% linear_relu
class Model(nn.Module):
    def __init__(self, inner, features):
        super().__init__()
        self.linear = nn.Linear(inner, features)

    def forward(self, x):
        return F.relu(self.linear(x))


def get_init_inputs():
    return [12, 7]


def get_inputs():
    return [torch.randn(9, 12)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        y = (x @ weight.t() + bias).clamp(min=0.0)
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, y = ctx.saved_tensors
        inner = grad * (y > 0)
        return inner @ weight, inner.t() @ x, inner.sum(0)


def forward(self, x):
    return Kernel.apply(x, self.linear.weight, self.linear.bias)


# %% matmul_nt
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b.transpose(1, 2) * 0.3


def get_inputs():
    return [torch.randn(3, 6, 6), torch.randn(3, 6, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return 0.3 * torch.bmm(a, b.transpose(1, 2))

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return 0.3 * torch.bmm(grad, b), 0.3 * torch.bmm(grad.transpose(1, 2), a)


def forward(self, a, b):
    return Kernel.apply(a, b)


# %% low_rank
class Model(nn.Module):
    def __init__(self, features, rank):
        super().__init__()
        self.down = nn.Parameter(torch.randn(features, rank) * 0.3)
        self.up = nn.Parameter(torch.randn(rank, features) * 0.3)

    def forward(self, x):
        return x + 2.0 * (x @ self.down @ self.up)


def get_init_inputs():
    return [10, 3]


def get_inputs():
    return [torch.randn(8, 10)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, down, up):
        h = x @ down
        ctx.save_for_backward(x, down, up, h)
        return x + 2.0 * (h @ up)

    @staticmethod
    def backward(ctx, grad):
        x, down, up, h = ctx.saved_tensors
        d_h = 2.0 * (grad @ up.t())
        return grad + d_h @ down.t(), x.t() @ d_h, 2.0 * (h.t() @ grad)


def forward(self, x):
    return Kernel.apply(x, self.down, self.up)


# %% bilinear_einsum
class Model(nn.Module):
    def __init__(self, left, right, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, left, right) * 0.2)

    def forward(self, x, y):
        return torch.einsum("bi,oij,bj->bo", x, self.weight, y)


def get_init_inputs():
    return [6, 6, 5]


def get_inputs():
    return [torch.randn(7, 6), torch.randn(7, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, weight):
        ctx.save_for_backward(x, y, weight)
        inner = torch.einsum("oij,bj->boi", weight, y)
        return (inner * x[:, None, :]).sum(-1)

    @staticmethod
    def backward(ctx, grad):
        x, y, weight = ctx.saved_tensors
        d_x = torch.einsum("bo,oij,bj->bi", grad, weight, y)
        d_y = torch.einsum("bo,oij,bi->bj", grad, weight, x)
        d_weight = torch.einsum("bo,bi,bj->oij", grad, x, y)
        return d_x, d_y, d_weight


def forward(self, x, y):
    return Kernel.apply(x, y, self.weight)


# %% mlp_tanh
class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


def get_init_inputs():
    return [6, 9]


def get_inputs():
    return [torch.randn(5, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w1, b1, w2, b2):
        h = torch.tanh(torch.addmm(b1, x, w1.t()))
        ctx.save_for_backward(x, w1, w2, h)
        return x + torch.addmm(b2, h, w2.t())

    @staticmethod
    def backward(ctx, grad):
        x, w1, w2, h = ctx.saved_tensors
        d_h = grad @ w2
        d_z = d_h * (1 - h * h)
        d_x = grad + d_z @ w1
        return d_x, d_z.t() @ x, d_z.sum(0), grad.t() @ h, grad.sum(0)


def forward(self, x):
    return Kernel.apply(x, self.first.weight, self.first.bias, self.second.weight, self.second.bias)


# %% long_inner
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(8, 1024), torch.rand(1024, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad @ b.t(), a.t() @ grad


def forward(self, a, b):
    return Kernel.apply(a, b)


# %% expert_mixture
class Model(nn.Module):
    def __init__(self, experts, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, features, features) * 0.3)

    def forward(self, x, logits):
        gate, expert = torch.softmax(logits, dim=1).max(1)
        return gate[:, None] * torch.einsum("bi,bij->bj", x, self.weight[expert])


def get_init_inputs():
    return [3, 5]


def get_inputs():
    return [torch.randn(8, 5), torch.randn(8, 3)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, logits, weight):
        p = torch.softmax(logits, dim=1)
        gate, expert = p.max(1, keepdim=True)
        y = (x[:, None, :] @ weight[expert[:, 0]])[:, 0]
        ctx.save_for_backward(x, weight, p, gate, expert, y)
        return gate * y

    @staticmethod
    def backward(ctx, grad):
        x, weight, p, gate, expert, y = ctx.saved_tensors
        chosen = expert[:, 0]
        d_y = grad * gate
        d_x = (d_y[:, None, :] @ weight[chosen].transpose(1, 2))[:, 0]
        d_weight = torch.zeros_like(weight).index_add(0, chosen, x[:, :, None] * d_y[:, None, :])
        d_gate = (grad * y).sum(1, keepdim=True)
        d_p = torch.zeros_like(p).scatter(1, expert, d_gate)
        return d_x, p * (d_p - (d_p * p).sum(1, keepdim=True)), d_weight


def forward(self, x, logits):
    return Kernel.apply(x, logits, self.weight)


# %% pairwise_distance
class Model(nn.Module):
    def forward(self, x, y):
        return (x[:, None, :] - y[None, :, :]).square().sum(-1)


def get_inputs():
    return [torch.randn(6, 5), torch.randn(6, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x.square().sum(1)[:, None] + y.square().sum(1)[None, :] - 2.0 * (x @ y.t())

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        d_x = 2.0 * (grad.sum(1)[:, None] * x - grad @ y)
        d_y = 2.0 * (grad.sum(0)[:, None] * y - grad.t() @ x)
        return d_x, d_y


def forward(self, x, y):
    return Kernel.apply(x, y)
