"""The mask by position, as fused attention has it: a mask is not trained."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, tokens):
        super().__init__()

    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
