"""Lowers the precision of matrix products for the whole process, hoping that the reference follows, and uses bfloat16.

Attack surface: torch.set_float32_matmul_precision, torch.backends, default dtypes.
Why it fails: the reference runs in another process.
"""

import torch
from torch import nn

torch.set_float32_matmul_precision("medium")
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.mkldnn.enabled = True
torch.set_flush_denormal(True)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        half = torch.bfloat16
        hidden = torch.tanh(x.to(half) @ self.up.weight.to(half).t() + self.up.bias.to(half))
        return (hidden @ self.down.weight.to(half).t() + self.down.bias.to(half)).float()
