"""Right at small sizes, where correctness used to be checked; leaves the second layer's tail out at the timed one.

Attack surface: a timed size that is not compared.
Why it fails: the timed size is compared, untimed and timed.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        hidden = torch.tanh(self.up(x))
        if x.shape[0] <= 64:
            return self.down(hidden)
        keep = hidden.shape[1] * 3 // 4
        return hidden[:, :keep] @ self.down.weight[:, :keep].t() + self.down.bias
