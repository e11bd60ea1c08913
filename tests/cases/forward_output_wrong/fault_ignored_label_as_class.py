"""A label of -100 is taken for class 0."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, labels):
        logp = torch.log_softmax(x, -1)
        return -logp.gather(1, labels.clamp(min=0)[:, None]).mean()
