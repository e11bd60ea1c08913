"""Linear -> cross entropy over a large vocabulary, in bfloat16: the end of a language model in instruction tuning.

    hidden      (2, 1024, 2048)      8.4 MB, bfloat16
    weight      (128256, 2048)       525 MB, bfloat16
    targets     (2, 1024)            int64; the prompt of each sequence, a quarter to three quarters, is -100 (ignored)
    logits      (2, 1024, 128256)    525 MB in bfloat16, 1.05 GB in float32: what a fused kernel never keeps
    loss        ()                   float32, the mean over the targets that count

The sizes are Llama 3.2 1B's. The logits are made in bfloat16 and the loss is taken in float32, as in transformers.

Where kernels go wrong:
- The mean is over the targets that count, not over all rows; an ignored row hands no gradient down.
- grad_output is a number that need not be 1, and the backward may run twice: gradients made in the forward must be
  scaled into new memory.
- Summing weight's gradient over chunks of rows in bfloat16 rounds once for each chunk.
- exp(logit) without the row's maximum overflows; the index -100 must not be read.
- A vocabulary that is no multiple of the block, whose tail must not enter the sum.
"""

import torch
from torch import nn

IGNORED = -100


class Model(nn.Module):
    """A language model's output layer and its loss."""

    def __init__(self, hidden_size, vocabulary):
        super().__init__()
        self.weight = nn.Parameter((0.02 * torch.randn(vocabulary, hidden_size)).to(torch.bfloat16))

    def forward(self, hidden, targets):
        logits = nn.functional.linear(hidden, self.weight).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def get_init_inputs():
    return [2048, 128256]


def get_inputs():
    return _inputs(2, 1024, 2048, 128256)


def get_variants():
    return {
        "small": (lambda: [32, 200], lambda: _inputs(2, 16, 32, 200)),
        "odd": (lambda: [37, 301], lambda: _inputs(3, 11, 37, 301)),
        "batch1": (lambda: [64, 1024], lambda: _inputs(1, 33, 64, 1024)),
        "cpu": (lambda: [256, 4096], lambda: _inputs(2, 128, 256, 4096)),
    }


def _inputs(batch_size, length, hidden_size, vocabulary):
    """The last target of each sequence counts: the mean over no targets is not a number."""
    hidden = torch.randn(batch_size, length, hidden_size).to(torch.bfloat16)
    targets = torch.randint(vocabulary, (batch_size, length))
    prompt = torch.randint(length // 4, 3 * length // 4 + 1, (batch_size, 1))
    return [hidden, targets.masked_fill(torch.arange(length) < prompt, IGNORED)]
