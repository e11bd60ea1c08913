"""The same in float32, with the classes in blocks and a maximum that follows them."""

import torch
from torch import nn


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, target):
        logits = x @ weight.T + bias
        ctx.save_for_backward(x, weight, logits, target)
        top = torch.full_like(logits[:, 0], float("-inf"))
        total = torch.zeros_like(top)
        for block in logits.split(64, 1):
            larger = torch.maximum(top, block.amax(1))
            total = total * torch.exp(top - larger) + torch.exp(block - larger[:, None]).sum(1)
            top = larger
        return top + total.log() - logits.gather(1, target[:, None])[:, 0]

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, logits, target = ctx.saved_tensors
        grad = torch.softmax(logits, 1) - nn.functional.one_hot(target, logits.shape[1])
        grad = grad * grad_output[:, None]
        return grad @ weight, grad.T @ x, grad.sum(0), None


class ModelNew(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.linear = nn.Linear(features, classes)

    def forward(self, x, target):
        return Loss.apply(x, self.linear.weight, self.linear.bias, target)
