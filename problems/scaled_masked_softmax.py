"""Scale -> mask -> softmax of attention scores, as Megatron-LM fuses it, at GPT-2 medium's size.

    scores      (4, 16, 1024, 1024)      268 MB
    masked      (4, 1, 1024, 1024)       4.2 MB of bool, one for all heads: later keys, and the padding on the right
    output      (4, 16, 1024, 1024)      268 MB

More than half of the elements are masked. Key 0 never is, so each row has something to attend to.

Where kernels go wrong:
- The mask of a sample is the same for all its heads.
- A masked probability is exactly 0, and so is the gradient there.
- The scale belongs into the gradient too.
- The maximum is of the scores that are not masked: with any other the sum may underflow to 0.
- The gradient needs the sum of grad_output * output over the row before its first element.
"""

import torch
from torch import nn


class Model(nn.Module):
    """Probabilities of the keys that are not masked."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, scores, masked):
        return (scores * self.scale).masked_fill(masked, float("-inf")).softmax(dim=-1)


def get_init_inputs():
    return [0.125]


def get_inputs():
    return _inputs(4, 16, 1024)


def get_variants():
    return {
        "small": (lambda: [0.5], lambda: _inputs(2, 3, 32)),
        "odd": (lambda: [0.3], lambda: _inputs(3, 5, 77)),
        "batch1": (lambda: [0.125], lambda: _inputs(1, 4, 132)),
        "cpu": (lambda: [0.125], lambda: _inputs(2, 8, 256)),
    }


def _inputs(batch_size, heads, length):
    """Scores of a spread that makes rows neither flat nor one-hot."""
    scores = 8.0 * torch.randn(batch_size, heads, length, length)
    lengths = torch.randint(length // 2, length + 1, (batch_size, 1, 1, 1))
    position = torch.arange(length)
    return [scores, (position > position[:, None]) | (position >= lengths)]
