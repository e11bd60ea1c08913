"""Two outputs whose backward needs the grad_output of both, as a hand-written reference may."""

import torch
from torch import nn


class SineAndSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        return torch.sin(x), x * x

    @staticmethod
    def backward(ctx, grad_sine, grad_square):
        (x,) = ctx.saved_tensors
        return grad_sine * torch.cos(x) + grad_square * 2 * x


class Model(nn.Module):
    def forward(self, x):
        return SineAndSquare.apply(x)


def get_inputs():
    return [torch.randn(40, 30)]


def get_init_inputs():
    return []
