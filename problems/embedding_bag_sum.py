"""EmbeddingBag: weighted sums of looked-up rows, as recommendation models (DLRM, MLPerf's size of row) look up
categories.

    tokens      (16384, 32)          4.2 MB of int64; up to half of a bag is padding (index 0)
    weights     (16384, 32)          2.1 MB, one for each lookup
    embedding   (200000, 128)        102 MB
    looked up   (16384, 32, 128)     268 MB, the tensor that a fused lookup never writes
    output      (16384, 128)         8.4 MB

Few rows are looked up often and many rarely or never, as categories are.

Where kernels go wrong:
- Tokens repeat, within a bag and across bags: the embedding's gradient is a scatter with collisions.
- Padding adds nothing, whatever its weight and row 0 of the embedding are; row 0 gets no gradient, and neither does
  the weight of padding.
- The gradient of a lookup's weight is a dot product of its row with grad_output.
- The embedding's gradient is dense: rows that nobody looked up are zero, not unwritten.
"""

import torch
from torch import nn

PADDING = 0


class Model(nn.Module):
    """Weighted bag sums."""

    def __init__(self, num_embeddings, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(num_embeddings, width, mode="sum", padding_idx=PADDING)

    def forward(self, tokens, weights):
        return self.bag(tokens, per_sample_weights=weights)


def get_init_inputs():
    return [200000, 128]


def get_inputs():
    return _inputs(16384, 32, 200000)


def get_variants():
    return {
        "small": (lambda: [50, 16], lambda: _inputs(16, 8, 50)),
        "odd": (lambda: [301, 37], lambda: _inputs(29, 7, 301)),
        "batch1": (lambda: [1000, 64], lambda: _inputs(1, 33, 1000)),
        "cpu": (lambda: [20000, 64], lambda: _inputs(1024, 32, 20000)),
    }


def _inputs(bags, slots, num_embeddings):
    """The squares of uniform draws: the density of index i falls as 1 / sqrt(i)."""
    tokens = 1 + (torch.rand(bags, slots).square() * (num_embeddings - 1)).long()
    lengths = torch.randint(slots // 2, slots + 1, (bags, 1))
    weights = torch.empty(bags, slots).uniform_(0.5, 1.5)
    return [tokens.masked_fill(torch.arange(slots) >= lengths, PADDING), weights]
