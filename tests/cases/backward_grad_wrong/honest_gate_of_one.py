"""The softmax's gradient as flash attention computes it: two sums that cancel up to rounding."""

import torch
from torch import nn


class Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, experts):
        chosen, expert = (x @ weight.t() + bias).topk(1, -1)
        share, matrices = torch.softmax(chosen, -1), experts[expert[:, 0]]
        y = share * torch.einsum("tf,tfg->tg", x, matrices)
        ctx.save_for_backward(x, weight, experts, share, expert, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, experts, share, expert, y = ctx.saved_tensors
        through = torch.einsum("tg,tfg->tf", grad_output, experts[expert[:, 0]])
        grad_share = (through * x).sum(-1, keepdim=True)
        grad_chosen = share * (grad_share - (grad_output * y).sum(-1, keepdim=True))
        grad_logits = x.new_zeros(len(x), len(weight)).scatter(1, expert, grad_chosen)
        of_each = torch.einsum("tf,tg->tfg", share * x, grad_output)
        grad_experts = torch.zeros_like(experts).index_add(0, expert[:, 0], of_each)
        grad_x = share * through + grad_logits @ weight
        return grad_x, grad_logits.t() @ x, grad_logits.sum(0), grad_experts


class ModelNew(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.gate = nn.Linear(features, experts)
        self.experts = nn.Parameter(torch.randn(experts, features, features) / features**0.5)

    def forward(self, x):
        return Mixture.apply(x, self.gate.weight, self.gate.bias, self.experts)
