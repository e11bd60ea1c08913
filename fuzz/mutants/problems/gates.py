"""Gates and recurrent cells."""

import torch
import torch.nn.functional as F
from torch import nn


# %% swiglu
class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(6, 10)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        half = x.shape[-1] // 2
        gate, value = x[..., :half], x[..., half:]
        ctx.save_for_backward(x)
        return gate * torch.sigmoid(gate) * value

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        half = x.shape[-1] // 2
        gate, value = x[..., :half], x[..., half:]
        s = torch.sigmoid(gate)
        d_gate = grad * value * s * (1.0 + gate * (1.0 - s))
        d_value = grad * gate * s
        return torch.cat([d_gate, d_value], dim=-1)


def forward(self, x):
    return Kernel.apply(x)


# %% glu
class Model(nn.Module):
    def forward(self, x):
        return F.glu(x, dim=1)


def get_inputs():
    return [torch.randn(4, 6, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        value, gate = x.chunk(2, dim=1)
        s = torch.sigmoid(gate)
        ctx.save_for_backward(value, s)
        return value * s

    @staticmethod
    def backward(ctx, grad):
        value, s = ctx.saved_tensors
        return torch.cat([grad * s, grad * value * s * (1 - s)], dim=1)


def forward(self, x):
    return Kernel.apply(x)


# %% highway
class Model(nn.Module):
    def forward(self, x, h, g):
        t = torch.sigmoid(g)
        return t * torch.tanh(h) + (1 - t) * x


def get_inputs():
    return [torch.randn(6, 7), torch.randn(6, 7), torch.randn(6, 7)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, h, g):
        t, a = torch.sigmoid(g), torch.tanh(h)
        ctx.save_for_backward(x, t, a)
        return x + t * (a - x)

    @staticmethod
    def backward(ctx, grad):
        x, t, a = ctx.saved_tensors
        d_x = grad * (1 - t)
        d_h = grad * t * (1 - a * a)
        d_g = grad * (a - x) * t * (1 - t)
        return d_x, d_h, d_g


def forward(self, x, h, g):
    return Kernel.apply(x, h, g)


# %% outer_gate
class Model(nn.Module):
    def forward(self, u, v, x):
        return x * torch.sigmoid(u[:, :, None] * v[:, None, :])


def get_inputs():
    return [torch.randn(4, 5), torch.randn(4, 5), torch.randn(4, 5, 5)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, v, x):
        s = torch.sigmoid(u[:, :, None] * v[:, None, :])
        ctx.save_for_backward(u, v, x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        u, v, x, s = ctx.saved_tensors
        d_outer = grad * x * s * (1 - s)
        d_u = (d_outer * v[:, None, :]).sum(2)
        d_v = (d_outer * u[:, :, None]).sum(1)
        return d_u, d_v, grad * s


def forward(self, u, v, x):
    return Kernel.apply(u, v, x)


# %% squeeze_excite
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, channels) * 0.5)

    def forward(self, x):
        gate = torch.sigmoid(x.mean((2, 3)) @ self.weight.t())
        return x * gate[:, :, None, None]


def get_init_inputs():
    return [5]


def get_inputs():
    return [torch.randn(3, 5, 4, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        mean = x.mean((2, 3))
        gate = torch.sigmoid(mean @ weight.t())
        ctx.save_for_backward(x, weight, mean, gate)
        return x * gate[:, :, None, None]

    @staticmethod
    def backward(ctx, grad):
        x, weight, mean, gate = ctx.saved_tensors
        d_gate = (grad * x).sum((2, 3)) * gate * (1 - gate)
        d_mean = d_gate @ weight / (x.shape[2] * x.shape[3])
        return grad * gate[:, :, None, None] + d_mean[:, :, None, None], d_gate.t() @ mean


def forward(self, x):
    return Kernel.apply(x, self.weight)


# %% gru_cell
class Model(nn.Module):
    def forward(self, gi, gh, h):
        ir, iz, i_n = gi.chunk(3, 1)
        hr, hz, hn = gh.chunk(3, 1)
        r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
        n = torch.tanh(i_n + r * hn)
        return (1 - z) * n + z * h


def get_inputs():
    return [torch.randn(5, 12), torch.randn(5, 12), torch.randn(5, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gi, gh, h):
        size = h.shape[1]
        r = torch.sigmoid(gi[:, :size] + gh[:, :size])
        z = torch.sigmoid(gi[:, size : 2 * size] + gh[:, size : 2 * size])
        hn = gh[:, 2 * size :]
        n = torch.tanh(gi[:, 2 * size :] + r * hn)
        ctx.save_for_backward(r, z, n, h, hn)
        return n + z * (h - n)

    @staticmethod
    def backward(ctx, grad):
        r, z, n, h, hn = ctx.saved_tensors
        d_n = grad * (1 - z) * (1 - n * n)
        d_z = grad * (h - n) * z * (1 - z)
        d_r = d_n * hn * r * (1 - r)
        d_gi = torch.cat([d_r, d_z, d_n], dim=1)
        d_gh = torch.cat([d_r, d_z, d_n * r], dim=1)
        return d_gi, d_gh, grad * z


def forward(self, gi, gh, h):
    return Kernel.apply(gi, gh, h)


# %% lstm_cell
class Model(nn.Module):
    def forward(self, gates, c):
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


def get_inputs():
    return [torch.randn(5, 16), torch.randn(5, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, c):
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        new = f * c + i * g
        t = new.tanh()
        ctx.save_for_backward(i, f, g, o, c, t)
        return o * t, new

    @staticmethod
    def backward(ctx, grad_h, grad_c):
        i, f, g, o, c, t = ctx.saved_tensors
        d_c = grad_c + grad_h * o * (1 - t * t)
        d_i = d_c * g * i * (1 - i)
        d_f = d_c * c * f * (1 - f)
        d_g = d_c * i * (1 - g * g)
        d_o = grad_h * t * o * (1 - o)
        return torch.cat([d_i, d_f, d_g, d_o], 1), d_c * f


def forward(self, gates, c):
    return Kernel.apply(gates, c)
