"""The logits are rounded to float16 on their way into the loss; their gradient is right."""

import torch
from torch import nn


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, target):
        logits = x @ weight.T + bias
        ctx.save_for_backward(x, weight, logits, target)
        logits = logits.half().float()
        return logits.logsumexp(1) - logits.gather(1, target[:, None])[:, 0]

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
