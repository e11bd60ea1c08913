"""An online softmax over blocks of keys, whose running maximum begins at minus infinity."""

import torch
from torch import nn

START = -torch.inf


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        highest = torch.full_like(q[..., :1], START)
        total = torch.zeros_like(highest)
        output = torch.zeros_like(q)
        for keys, values in zip(k.split(4, -2), v.split(4, -2)):
            scores = q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
            new = torch.maximum(highest, scores.amax(-1, keepdim=True))
            weights, faded = (scores - new).exp(), (highest - new).exp()
            total = total * faded + weights.sum(-1, keepdim=True)
            output = output * faded + weights @ values
            highest = new
        return output / total
