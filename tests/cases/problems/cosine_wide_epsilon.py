"""The cosine of rows with an epsilon that drawn rows exceed; below it, PyTorch's gradient is not the derivative."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return nn.functional.cosine_similarity(a, b, dim=1, eps=1e-2)


def get_inputs():
    return [torch.randn(16, 64), torch.randn(16, 64)]


def get_init_inputs():
    return []
