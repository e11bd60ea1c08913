"""Multiplies the update gate's gradient by the state, and not by the state less the new gate."""

import torch
from torch import nn


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, h, weight_x, weight_h, bias_x, bias_h):
        xr, xz, xn = (x @ weight_x.T + bias_x).chunk(3, 1)
        hr, hz, hn = (h @ weight_h.T + bias_h).chunk(3, 1)
        reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        new = torch.tanh(xn + reset * hn)
        ctx.save_for_backward(x, h, weight_x, weight_h, reset, update, new, hn)
        return (1 - update) * new + update * h

    @staticmethod
    def backward(ctx, grad_output):
        x, h, weight_x, weight_h, reset, update, new, hn = ctx.saved_tensors
        of_new = grad_output * (1 - update) * (1 - new * new)
        of_update = grad_output * h * update * (1 - update)
        of_reset = of_new * hn * reset * (1 - reset)
        grad_x = torch.cat([of_reset, of_update, of_new], 1)
        grad_h = torch.cat([of_reset, of_update, of_new * reset], 1)
        return (
            grad_x @ weight_x,
            grad_h @ weight_h + grad_output * update,
            grad_x.T @ x,
            grad_h.T @ h,
            grad_x.sum(0),
            grad_h.sum(0),
        )


class ModelNew(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.cell = nn.GRUCell(inputs, features)

    def forward(self, x, h):
        cell = self.cell
        return Step.apply(x, h, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
