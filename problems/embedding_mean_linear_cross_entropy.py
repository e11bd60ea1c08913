"""Bag-of-words classification: embedding lookup -> mean over tokens -> Linear -> cross entropy with label smoothing.

    tokens      (4096, 64)               2.1 MB of int64
    targets     (4096,)                  int64, about one in eight is -100 (ignored)
    embedding   (50000, 256)             51.2 MB
    looked up   (4096, 64, 256)          268 MB, the tensor that a fused lookup never writes
    logits      (4096, 1000)             16.4 MB
    loss        (4096,)                  one per sample, not reduced

Only the embedding's and the linear layer's parameters have gradients: the inputs are integers.

Where kernels go wrong:
- Tokens repeat, within a bag and across bags: the embedding's gradient is a scatter with collisions, dense, and zero in
  the rows that nobody looked up.
- An ignored sample has loss 0 and hands no gradient down, whatever its grad_output. Its index -100 must not be read.
- Label smoothing takes the mean of all log-probabilities into the loss: softmax minus one-hot is the wrong gradient.
- The losses are not reduced, so each sample has a grad_output of its own.
"""

import torch
from torch import nn

IGNORED = -100


class Model(nn.Module):
    """A mean of embeddings, a linear classifier and a smoothed loss per sample."""

    def __init__(self, num_embeddings, embedding_dim, num_classes, label_smoothing):
        super().__init__()
        self.embedding = nn.Embedding(num_embeddings, embedding_dim)
        self.linear = nn.Linear(embedding_dim, num_classes)
        self.label_smoothing = label_smoothing

    def forward(self, tokens, targets):
        pooled = self.embedding(tokens).mean(dim=1)
        logits = self.linear(pooled)
        return nn.functional.cross_entropy(
            logits, targets, reduction="none", ignore_index=IGNORED, label_smoothing=self.label_smoothing
        )


def get_init_inputs():
    return [50000, 256, 1000, 0.1]


def get_inputs():
    return _inputs(4096, 64, 50000, 1000)


def get_variants():
    return {
        "small": (lambda: [500, 32, 40, 0.1], lambda: _inputs(32, 8, 500, 40)),
        "odd": (lambda: [301, 37, 53, 0.2], lambda: _inputs(29, 7, 301, 53)),
        "batch1": (lambda: [1000, 64, 100, 0.1], lambda: _inputs(1, 33, 1000, 100)),
        "cpu": (lambda: [20000, 128, 500, 0.1], lambda: _inputs(2048, 64, 20000, 500)),
    }


def _inputs(batch_size, tokens_per_sample, num_embeddings, num_classes):
    """The first sample always counts: a batch in which every target is ignored would check nothing."""
    tokens = torch.randint(num_embeddings, (batch_size, tokens_per_sample))
    targets = torch.randint(num_classes, (batch_size,))
    ignored = torch.rand(batch_size) < 0.125
    ignored[0] = False
    return [tokens, targets.masked_fill(ignored, IGNORED)]
