"""The gradient of the gain lacks its second division by the gain, and is a multiple of the other output's share."""

import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, left, right):
        inner = torch.tanh(left @ weight @ right)
        gain = 3 + inner
        product = x @ weight.t() / gain
        ctx.save_for_backward(x, weight, left, right, inner, product)
        return product, gain

    @staticmethod
    def backward(ctx, grad_product, grad_gain):
        x, weight, left, right, inner, product = ctx.saved_tensors
        gain = 3 + inner
        grad_gain = grad_gain - (grad_product * product).sum()
        grad_weight = grad_product.t() @ x / gain + grad_gain * (1 - inner * inner) * torch.outer(left, right)
        return grad_product @ weight / gain, grad_weight, None, None


class ModelNew(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, features))
        self.register_buffer("left", nn.functional.normalize(torch.randn(outputs), dim=0))
        self.register_buffer("right", nn.functional.normalize(torch.randn(features), dim=0))

    def forward(self, x):
        return Product.apply(x, self.weight, self.left, self.right)
