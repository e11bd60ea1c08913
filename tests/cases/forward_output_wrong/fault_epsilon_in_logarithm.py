"""Adds an epsilon to what the logarithm takes."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        logs = (predictions + 1e-6).log()
        return (torch.xlogy(targets, targets) - targets * logs).sum() / predictions.shape[0]
