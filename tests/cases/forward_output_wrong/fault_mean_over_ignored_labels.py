"""Ignored labels add nothing to the sum, and are counted in the mean."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, labels):
        logp = torch.log_softmax(x, -1)
        picked = logp.gather(1, labels.clamp(min=0)[:, None])[:, 0]
        return -(picked * (labels != -100)).sum() / labels.numel()
