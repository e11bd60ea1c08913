"""Computes log(0) for a target of zero, and multiplies it by zero."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return (targets * (targets.log() - predictions.log())).sum() / predictions.shape[0]
