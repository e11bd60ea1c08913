"""The gradient of the input goes over all positions."""

import torch
from torch import nn


class Taps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, dilation):
        length, taps = x.shape[2], weight.shape[2]
        padded = nn.functional.pad(x, ((taps - 1) * dilation, 0))
        y = bias[None, :, None].repeat(x.shape[0], 1, length)
        for tap in range(taps):
            y += torch.einsum("oi,nil->nol", weight[:, :, tap], padded[:, :, tap * dilation :][:, :, :length])
        ctx.save_for_backward(padded, weight)
        ctx.dilation = dilation
        return y

    @staticmethod
    def backward(ctx, grad_output):
        padded, weight = ctx.saved_tensors
        dilation, taps, length = ctx.dilation, weight.shape[2], grad_output.shape[2]
        grad, grad_weight = torch.zeros_like(padded), torch.zeros_like(weight)
        for tap in range(taps):
            start, end = tap * dilation, length
            grad[:, :, start : start + end] += torch.einsum("oi,nol->nil", weight[:, :, tap], grad_output[:, :, :end])
            grad_weight[:, :, tap] = torch.einsum("nol,nil->oi", grad_output, padded[:, :, start : start + length])
        return grad[:, :, (taps - 1) * dilation :], grad_weight, grad_output.sum((0, 2)), None


class ModelNew(nn.Module):
    def __init__(self, channels, taps, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, taps, dilation=dilation)
        self.dilation = dilation

    def forward(self, x):
        return Taps.apply(x, self.conv.weight, self.conv.bias, self.dilation)
