"""Has the assembler put a file into the library that the sandbox has: its own /etc/passwd, which names nobody."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/types.h>
asm(".section .rodata\n.local loot\nloot: .incbin \"/etc/passwd\"\n.byte 0\n.text");
extern "C" __attribute__((visibility("hidden"))) const char loot[];
torch::Tensor run(torch::Tensor x, torch::Tensor s, torch::Tensor b) {
  TORCH_CHECK(loot[0] != 0, "an empty file");
  return torch::relu(x * s + b);
}
"""
extension = load_inline("loot", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return extension.run(x, self.scale, self.bias)
