"""The place of each row's largest element between 0 and 6: many elements may share it."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.relu6(x).argmax(-1)


def get_inputs():
    return [torch.randn(40, 64)]
