"""In train() the term of the variance is left out."""

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
            grad_x = (grad - grad.mean(0)) * weight * scale
        else:
            grad_x = grad * weight * scale
        return grad_x, (grad * normalized).sum(0), grad.sum(0), None, None, None, None


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        if self.training:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                unbiased = variance * (x.shape[0] / (x.shape[0] - 1))
                norm.running_mean.lerp_(mean, norm.momentum)
                norm.running_var.lerp_(unbiased, norm.momentum)
                norm.num_batches_tracked += 1
        else:
            mean, variance = norm.running_mean, norm.running_var
        return NormRelu.apply(x, norm.weight, norm.bias, mean.detach(), variance.detach(), norm.eps, self.training)
