"""Multiplies the old cell's gradient by the input gate, and not by the forget gate."""

import torch
from torch import nn


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, h, c, weight_x, weight_h, bias_x, bias_h):
        gates = x @ weight_x.T + bias_x + h @ weight_h.T + bias_h
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        cell = f * c + i * g
        ctx.save_for_backward(x, h, c, weight_x, weight_h, i, f, g, o, cell)
        return o * torch.tanh(cell), cell

    @staticmethod
    def backward(ctx, grad_h, grad_cell):
        x, h, c, weight_x, weight_h, i, f, g, o, cell = ctx.saved_tensors
        squashed = torch.tanh(cell)
        of_o = grad_h * squashed * o * (1 - o)
        of_cell = grad_cell + grad_h * o * (1 - squashed * squashed)
        of_i = of_cell * g * i * (1 - i)
        of_f = of_cell * c * f * (1 - f)
        of_g = of_cell * i * (1 - g * g)
        gates = torch.cat([of_i, of_f, of_g, of_o], 1)
        bias = gates.sum(0)
        return gates @ weight_x, gates @ weight_h, of_cell * i, gates.T @ x, gates.T @ h, bias, bias


class ModelNew(nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        self.cell = nn.LSTMCell(inputs, features)

    def forward(self, x, h, c):
        cell = self.cell
        return Step.apply(x, h, c, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
