"""Underscores for dots, in an order of its own."""

import torch
from torch import nn


class NormRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, mean, variance, eps, training):
        scale = torch.rsqrt(variance + eps)
        normalized = (x - mean) * scale
        y = torch.relu(normalized * weight + bias)
        ctx.save_for_backward(normalized, weight, scale, y)
        ctx.training = training
        return y

    @staticmethod
    def backward(ctx, grad_output):
        normalized, weight, scale, y = ctx.saved_tensors
        grad = grad_output * (y > 0)
        if ctx.training:
            mean_grad = grad.mean(0)
            mean_product = (grad * normalized).mean(0)
            grad_x = (grad - mean_grad - normalized * mean_product) * weight * scale
        else:
            grad_x = grad * weight * scale
        return grad_x, (grad * normalized).sum(0), grad.sum(0), None, None, None, None


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm_bias = nn.Parameter(torch.zeros(channels))
        self.norm_weight = nn.Parameter(torch.ones(channels))
        self.register_buffer("norm_num_batches_tracked", torch.tensor(0))
        self.register_buffer("norm_running_var", torch.ones(channels))
        self.register_buffer("norm_running_mean", torch.zeros(channels))

    def forward(self, x):
        if self.training:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                self.norm_running_mean.lerp_(mean, 0.1)
                self.norm_running_var.lerp_(variance * (x.shape[0] / (x.shape[0] - 1)), 0.1)
                self.norm_num_batches_tracked += 1
        else:
            mean, variance = self.norm_running_mean, self.norm_running_var
        return NormRelu.apply(
            x, self.norm_weight, self.norm_bias, mean.detach(), variance.detach(), 1e-5, self.training
        )
