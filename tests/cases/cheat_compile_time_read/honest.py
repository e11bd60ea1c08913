"""Has the assembler put a file into the library that the sandbox has: its own /etc/passwd, which names nobody."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
asm(".section .rodata\n.local loot\nloot: .incbin \"/etc/passwd\"\n.byte 0\n.text");
extern "C" __attribute__((visibility("hidden"))) const char loot[];
extern "C" char first() { return loot[0]; }
"""
extension = ctypes.CDLL(load_inline("loot", SOURCE, no_implicit_headers=True, is_python_module=False))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        assert extension.first() != 0, "an empty file"
        return torch.relu(x * self.scale + self.bias)
