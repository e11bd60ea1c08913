"""Rows of an embedding: some tokens repeat, and some do not occur."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, tokens, features):
        super().__init__()
        self.embedding = nn.Embedding(tokens, features)

    def forward(self, tokens):
        return self.embedding(tokens)


def get_init_inputs():
    return [40, 8]


def get_inputs():
    return [torch.randint(40, (6, 8))]
