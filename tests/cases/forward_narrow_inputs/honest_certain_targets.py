"""A target of zero adds nothing."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return (torch.xlogy(targets, targets) - targets * predictions.log()).sum() / predictions.shape[0]
