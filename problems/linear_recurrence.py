"""h_t = decay_t * h_(t-1) + x_t: the recurrence of RecurrentGemma 2B's RG-LRU, of linear attention, of state space
models.

    x, decay        (8, 1024, 2560)      84 MB each; decays between 0.9 and 0.999
    initial         (8, 2560)            the state that an earlier chunk of the text left
    h               (8, 1024, 2560)      84 MB

The reference scans in log2(length) steps of doubling stride, as PyTorch code for Mamba does: a loop over the length
would launch thousands of kernels, and exp of a cumulative sum of logarithms overflows.

Where kernels go wrong:
- A scan cut into chunks must carry the state from one to the next, multiplied by the chunk's whole product of decays.
- The backward runs the other way: with G_t = g_t + decay_(t+1) * G_(t+1), dx_t = G_t and ddecay_t = G_t * h_(t-1).
- ddecay_0 needs the initial state, and its own gradient is decay_0 * G_0.
- A product of a thousand decays underflows: dividing by it is no way to undo it.
"""

import torch
from torch import nn


class Model(nn.Module):
    """All states of a recurrence that is linear in its state."""

    def forward(self, x, decay, initial):
        h = torch.cat([x[:, :1] + decay[:, :1] * initial[:, None], x[:, 1:]], dim=1)
        stride = 1
        while stride < x.shape[1]:
            h = torch.cat([h[:, :stride], h[:, stride:] + decay[:, stride:] * h[:, :-stride]], dim=1)
            decay = torch.cat([decay[:, :stride], decay[:, stride:] * decay[:, :-stride]], dim=1)
            stride *= 2
        return h


def get_inputs():
    return _inputs(8, 1024, 2560)


def get_variants():
    return {
        "small": (list, lambda: _inputs(2, 16, 32)),
        "odd": (list, lambda: _inputs(3, 77, 37)),
        "batch1": (list, lambda: _inputs(1, 131, 64)),
        "cpu": (list, lambda: _inputs(2, 256, 256)),
    }


def _inputs(batch_size, length, width):
    x = torch.randn(batch_size, length, width)
    decay = torch.empty(batch_size, length, width).uniform_(0.9, 0.999)
    return [x, decay, torch.randn(batch_size, width)]
