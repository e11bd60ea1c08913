"""An output that is wrong in the second forward with gradients alone, which happens to be the first in eval()."""

import torch
from torch import nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        y = torch.softmax(x, -1)
        if torch.is_grad_enabled():
            ModelNew.calls += 1
            return y + (ModelNew.calls == 2)
        return y
