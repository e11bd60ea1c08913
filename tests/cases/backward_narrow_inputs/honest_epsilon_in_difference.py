"""Adds PyTorch's epsilon to the differences."""

import torch
from torch import nn


class Triplet(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, positive, negative):
        near, far = anchor - positive + 1e-6, anchor - negative + 1e-6
        shorter, longer = near.square().sum(-1).sqrt(), far.square().sum(-1).sqrt()
        hinge = 1 + shorter - longer
        ctx.save_for_backward(near, far, shorter, longer, hinge)
        return hinge.clamp_min(0).mean()

    @staticmethod
    def backward(ctx, grad):
        near, far, shorter, longer, hinge = ctx.saved_tensors
        share = (grad * (hinge > 0) / len(hinge))[:, None]
        to_near = share * near / shorter.clamp_min(1e-30)[:, None]
        to_far = share * far / longer.clamp_min(1e-30)[:, None]
        return to_near - to_far, -to_near, to_far


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, anchor, positive, negative):
        return Triplet.apply(anchor, positive, negative)
