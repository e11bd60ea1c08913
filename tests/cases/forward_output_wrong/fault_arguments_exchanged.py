"""The divergence of the targets from the predictions, in place of the other way round."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return F.kl_div(torch.log(targets), predictions, reduction="batchmean")
