"""Backward adds an epsilon to the probabilities before they are normalised."""

import torch
from torch import nn


class Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student, teacher, temperature):
        ours = student / temperature - torch.logsumexp(student / temperature, -1, keepdim=True)
        theirs = teacher / temperature - torch.logsumexp(teacher / temperature, -1, keepdim=True)
        target = theirs.exp()
        ctx.save_for_backward(ours, target)
        ctx.scale = 1 / (len(student) * temperature)
        return (target * (theirs - ours)).sum() / len(student)

    @staticmethod
    def backward(ctx, grad_output):
        ours, target = ctx.saved_tensors
        probability = (ours.exp() + 1e-5) / (1 + 1e-5 * ours.shape[-1])
        return (probability - target) * (grad_output * ctx.scale), None, None


class ModelNew(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        return Divergence.apply(student, teacher.detach(), self.temperature)
