"""Returns what is no tensor as the reference does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {"squares": x.square(), "weights": (torch.exp(x), None), "rows": x.shape[0]}
