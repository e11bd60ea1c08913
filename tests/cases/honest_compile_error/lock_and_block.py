"""Does not compile, and the message says lock and block.

Wrongly rejected elsewhere: graders that take these words for a race in the build cache and try again, or blame themselves.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cstdint>
int64_t lock_block(int64_t block) { return lock_of_block(block); }
"""
extension = load_inline("locks", cpp_sources=SOURCE, functions=["lock_block"], no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias)
