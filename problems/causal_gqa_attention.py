"""Causal attention with grouped heads and capped scores, in bfloat16: the attention of Gemma 2 27B.

    query       (2, 32, 2048, 128)       33.6 MB, bfloat16
    key, value  (2, 16, 2048, 128)       16.8 MB each: two query heads share one
    scores      (2, 32, 2048, 2048)      537 MB, the tensor that a fused kernel never writes
    output      (2, 32, 2048, 128)       33.6 MB

scores = cap * tanh(query @ key^T * scale / cap), masked so that no query sees a later key. The reference is what
transformers runs as `eager`: scaled_dot_product_attention takes no cap, so users of this model write the products
out.

Where kernels go wrong:
- Query head h reads key head h // group, not h % heads; the gradients of key and value are sums over the group.
- The cap has a derivative, 1 - (score / cap)^2, which goes between softmax's gradient and the scale.
- The rescaling of what was summed before a new maximum was found; the maximum of a block with masked keys only.
- delta = sum(grad_output * output) is needed by every block of keys, before any of them.
- Lengths that are no multiple of the block: the tail's keys must have probability 0, not exp(0).
"""

import torch
from torch import nn


class Model(nn.Module):
    """Attention of queries to the keys before them."""

    def __init__(self, scale, cap):
        super().__init__()
        self.scale = scale
        self.cap = cap

    def forward(self, query, key, value):
        group = query.shape[1] // key.shape[1]
        key, value = (heads.repeat_interleave(group, dim=1) for heads in (key, value))
        scores = self.cap * torch.tanh(query @ key.transpose(2, 3) * self.scale / self.cap)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        probabilities = scores.masked_fill(later, float("-inf")).softmax(dim=-1, dtype=torch.float32)
        return probabilities.to(query.dtype) @ value


def get_init_inputs():
    return [144**-0.5, 50.0]


def get_inputs():
    return _inputs(2, 32, 16, 2048, 128)


def get_variants():
    return {
        "small": (lambda: [0.25, 5.0], lambda: _inputs(2, 4, 2, 32, 16)),
        "odd": (lambda: [0.2, 2.0], lambda: _inputs(2, 6, 2, 77, 24)),
        "batch1": (lambda: [0.125, 50.0], lambda: _inputs(1, 8, 1, 130, 64)),
        "cpu": (lambda: [0.125, 50.0], lambda: _inputs(1, 8, 4, 256, 64)),
    }


def _inputs(batch_size, query_heads, key_heads, length, width):
    shapes = [(batch_size, heads, length, width) for heads in (query_heads, key_heads, key_heads)]
    return [torch.randn(shape).to(torch.bfloat16) for shape in shapes]
