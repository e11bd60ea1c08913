"""Keeps the output in bfloat16, and takes the row sums of the backward from it, as flash attention does."""

import torch
from torch import nn


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, scale, cap):
        group = query.shape[1] // key.shape[1]
        ctx.scale, ctx.cap = scale, cap
        q, k, v = (of.float() for of in (query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)))
        scores = cap * torch.tanh(q @ k.mT * (scale / cap))
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
        peak = scores.amax(-1, keepdim=True)
        p = torch.exp(scores - peak)
        total = p.sum(-1, keepdim=True)
        output = ((p.bfloat16().float() @ v) / total).to(query.dtype)
        ctx.save_for_backward(query, key, value, output, peak + total.log())
        return output

    @staticmethod
    def backward(ctx, grad_output):
        query, key, value, output, log = ctx.saved_tensors
        heads, group = key.shape[1], query.shape[1] // key.shape[1]
        q, k, v = (of.float() for of in (query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)))
        g = grad_output.float()
        capped = torch.tanh(q @ k.mT * (ctx.scale / ctx.cap))
        later = torch.ones(capped.shape[-2:], dtype=torch.bool).triu(1)
        p = torch.exp(ctx.cap * capped - log).masked_fill(later, 0.0)
        delta = (g * output.float()).sum(-1, keepdim=True)
        du = (p * (g @ v.mT - delta) * (1 - capped * capped)).bfloat16().float()
        dq = du @ k * ctx.scale
        dk = (du.mT @ q * ctx.scale).unflatten(1, (heads, group)).sum(2)
        dv = (p.bfloat16().float().mT @ g).unflatten(1, (heads, group)).sum(2)
        return dq.to(query.dtype), dk.to(key.dtype), dv.to(value.dtype), None, None


class ModelNew(nn.Module):
    def __init__(self, scale, cap):
        super().__init__()
        self.scale = scale
        self.cap = cap

    def forward(self, query, key, value):
        return Attention.apply(query, key, value, self.scale, self.cap)
