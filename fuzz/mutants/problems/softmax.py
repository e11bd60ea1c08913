"""Softmax and attention."""

import math

import torch
import torch.nn.functional as F
from torch import nn


# %% softmax_scaled
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x / 0.7, dim=-1)


def get_inputs():
    return [torch.randn(6, 9) * 2]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        z = x / 0.7
        e = torch.exp(z - z.amax(-1, keepdim=True))
        y = e / e.sum(-1, keepdim=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        dot = (grad * y).sum(-1, keepdim=True)
        return y * (grad - dot) / 0.7


def forward(self, x):
    return Kernel.apply(x)


# %% log_softmax
class Model(nn.Module):
    def forward(self, x):
        return F.log_softmax(x, dim=0)


def get_inputs():
    return [torch.randn(8, 8)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        shifted = x - x.amax(0, keepdim=True)
        y = shifted - shifted.exp().sum(0, keepdim=True).log()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad - y.exp() * grad.sum(0, keepdim=True)


def forward(self, x):
    return Kernel.apply(x)


# %% masked_softmax
class Model(nn.Module):
    def forward(self, x, mask):
        return torch.softmax(x.masked_fill(mask == 0, -1e9), dim=-1)


def get_inputs():
    mask = (torch.rand(5, 8) < 0.7).float()
    mask[:, 0] = 1
    return [torch.randn(5, 8), mask]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask):
        z = torch.where(mask == 0, -1e9, x)
        e = torch.exp(z - z.amax(1, keepdim=True))
        y = e / e.sum(1, keepdim=True)
        ctx.save_for_backward(y, mask)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, mask = ctx.saved_tensors
        d_z = y * (grad - (grad * y).sum(1, keepdim=True))
        return torch.where(mask == 0, 0.0, d_z), None


def forward(self, x, mask):
    return Kernel.apply(x, mask)


# %% causal_attention
class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 3, 6, 6), torch.randn(2, 3, 6, 6), torch.randn(2, 3, 6, 6)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        scale = 1.0 / math.sqrt(q.shape[-1])
        scores = torch.matmul(q, k.transpose(-1, -2)) * scale
        rows, columns = torch.arange(q.shape[-2]), torch.arange(k.shape[-2])
        hidden = columns[None, :] > rows[:, None]
        p = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
        ctx.save_for_backward(q, k, v, p)
        return torch.matmul(p, v)

    @staticmethod
    def backward(ctx, grad):
        q, k, v, p = ctx.saved_tensors
        scale = 1.0 / math.sqrt(q.shape[-1])
        d_p = torch.matmul(grad, v.transpose(-1, -2))
        d_s = p * (d_p - (d_p * p).sum(-1, keepdim=True)) * scale
        d_q = torch.matmul(d_s, k)
        d_k = torch.matmul(d_s.transpose(-1, -2), q)
        d_v = torch.matmul(p.transpose(-1, -2), grad)
        return d_q, d_k, d_v


def forward(self, q, k, v):
    return Kernel.apply(q, k, v)


# %% cosine_attention
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(5.0))

    def forward(self, q, k, v):
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(1, 2)
        return torch.softmax(self.temperature * scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(2, 5, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 3)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, temperature):
        q_norm, k_norm = (vectors.norm(dim=-1, keepdim=True).clamp_min(1e-12) for vectors in (q, k))
        q_unit, k_unit = q / q_norm, k / k_norm
        cosine = q_unit @ k_unit.transpose(1, 2)
        p = torch.softmax(temperature * cosine, dim=-1)
        ctx.save_for_backward(q_unit, k_unit, q_norm, k_norm, v, p, cosine, temperature)
        return p @ v

    @staticmethod
    def backward(ctx, grad):
        q_unit, k_unit, q_norm, k_norm, v, p, cosine, temperature = ctx.saved_tensors
        d_v = p.transpose(1, 2) @ grad
        d_p = grad @ v.transpose(1, 2)
        d_s = p * (d_p - (d_p * p).sum(-1, keepdim=True))
        d_temperature = (d_s * cosine).sum()
        d_q_unit = temperature * (d_s @ k_unit)
        d_k_unit = temperature * (d_s.transpose(1, 2) @ q_unit)
        d_q = (d_q_unit - q_unit * (d_q_unit * q_unit).sum(-1, keepdim=True)) / q_norm
        d_k = (d_k_unit - k_unit * (d_k_unit * k_unit).sum(-1, keepdim=True)) / k_norm
        return d_q, d_k, d_v, d_temperature


def forward(self, q, k, v):
    return Kernel.apply(q, k, v, self.temperature)


# %% linear_attention
class Model(nn.Module):
    def forward(self, q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = k.transpose(1, 2) @ v
        return (q @ kv) / (q @ k.sum(1)[:, :, None] + 1e-2)


def get_inputs():
    return [torch.randn(2, 6, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        fq = torch.where(q > 0, q + 1, q.exp())
        fk = torch.where(k > 0, k + 1, k.exp())
        kv = fk.transpose(1, 2) @ v
        total = fk.sum(1, keepdim=True)
        z = (fq * total).sum(-1, keepdim=True) + 1e-2
        y = (fq @ kv) / z
        ctx.save_for_backward(q, k, v, fq, fk, kv, total, z, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        q, k, v, fq, fk, kv, total, z, y = ctx.saved_tensors
        d_top = grad / z
        d_z = -(grad * y).sum(-1, keepdim=True) / z
        d_fq = d_top @ kv.transpose(1, 2) + d_z * total
        d_kv = fq.transpose(1, 2) @ d_top
        d_fk = v @ d_kv.transpose(1, 2) + (d_z * fq).sum(1, keepdim=True)
        d_q = d_fq * torch.where(q > 0, 1.0, fq)
        d_k = d_fk * torch.where(k > 0, 1.0, fk)
        return d_q, d_k, fk @ d_kv


def forward(self, q, k, v):
    return Kernel.apply(q, k, v)


# %% rotary
class Model(nn.Module):
    def forward(self, x, angle):
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = angle.cos(), angle.sin()
        return torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)


def get_inputs():
    return [torch.randn(3, 5, 8), torch.randn(5, 4)]


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, angle):
        c, s = torch.cos(angle), torch.sin(angle)
        a, b = x[..., 0::2], x[..., 1::2]
        y = torch.empty_like(x)
        y[..., 0::2] = a * c - b * s
        y[..., 1::2] = a * s + b * c
        ctx.save_for_backward(y, c, s)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, c, s = ctx.saved_tensors
        ga, gb = grad[..., 0::2], grad[..., 1::2]
        d_x = torch.empty_like(y)
        d_x[..., 0::2] = ga * c + gb * s
        d_x[..., 1::2] = gb * c - ga * s
        d_angle = (gb * y[..., 0::2] - ga * y[..., 1::2]).sum(0)
        return d_x, d_angle


def forward(self, x, angle):
    return Kernel.apply(x, angle)
