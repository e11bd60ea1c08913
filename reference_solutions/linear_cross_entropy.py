"""Linear -> cross entropy, a chunk of rows at a time, on the rows that count alone.

Fused: the loss, its normalizer and the gradient of the logits, in one kernel over a chunk's logits, which it replaces.
The products go to cuBLAS, whose rate for these sizes no kernel of a few hundred lines reaches. Triton rather than CUDA
for what is between: memory bounds it. Where a backward may follow, the forward makes the gradients too, while a chunk's
logits exist; the backward scales them. So each product is made once, and no logits are kept.

At full size, with L = 525 MB for all logits in bfloat16, as large as weight, and p = 1/2 for the share of rows that
count:

                            eager                                                     here
    forward, bytes          10 L  (product 1, to float32 3, log-softmax 4, ...)      2 p L
    forward with gradients                                                           5 p L + 1 L
    backward, bytes         12 L  (log-softmax 6, to bfloat16 3, products 2, ...)    2 L  (weight's gradient, scaled)
    products                3 of 1.08 TFLOP                                          3 p of 1.08 TFLOP
    kept                    4 L, in float32 two tensors                              1 L, weight's gradient

Ignored rows have loss 0 and hand nothing down, so they are left out of every product; how many count is asked of the
GPU once, in the forward. This is what the eager reference and a compiler of it cannot do, as the mask is data. The
roofline bound counts all rows. The price: the host waits for the count before it can launch the products, and their
sizes differ in each batch.

On one H200, 2026-11-25, `python -m benchmarks.solutions` found 2.41 ms forward and 6.38 ms both ways, with launches,
where torch.compile's default takes 1.75 and 4.53 ms: waiting costs more than the rows that are left out. By events, a
form that made the logits again in the backward took 0.95 and 2.98 ms, of which 2.47 ms were cuBLAS's four products.

Why the backward is right: for a row with logits z, target t and N rows that count,

    loss = mean over rows of logsumexp(z) - z_t        dL/dz_j = grad_output * (softmax(z)_j - [j = t]) / N
    dhidden = dz @ weight        dweight = dz^T @ hidden

and all of it is linear in grad_output, a number, which therefore may come last. dweight is a sum over chunks, added up
by cuBLAS in float32 within a chunk and rounded to bfloat16 after each. What the forward kept is not changed, so that
the backward may run again.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.autograd.function import once_differentiable

IGNORED = -100
CHUNK = 2048
"""Rows whose logits exist at a time."""


@triton.jit(do_not_specialize=["count"])  # which differs in every batch
def row_losses(logits, targets, losses, count, vocabulary, BLOCK: tl.constexpr, GRADIENT: tl.constexpr):
    """A program reads a row of logits, keeping a running maximum and the sum of exponentials relative to it.

    With GRADIENT it reads the row again, from the L2 cache, and replaces it by (softmax - one-hot) / count.
    """
    row = tl.program_id(0)
    start = logits + row.to(tl.int64) * vocabulary
    target = tl.load(targets + row)
    of_target = tl.load(start + target).to(tl.float32)
    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for offset in range(0, vocabulary, BLOCK):
        c = offset + tl.arange(0, BLOCK)
        z = tl.load(start + c, mask=c < vocabulary, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, z)
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - finite) + tl.exp(z - finite)
        peak = higher
    highest = tl.max(peak, axis=0)
    normalizer = highest + tl.log(tl.sum(total * tl.exp(peak - highest), axis=0))
    tl.store(losses + row, normalizer - of_target)
    if GRADIENT:
        for offset in range(0, vocabulary, BLOCK):
            c = offset + tl.arange(0, BLOCK)
            z = tl.load(start + c, mask=c < vocabulary, other=0.0).to(tl.float32)
            gradient = (tl.exp(z - normalizer) - tl.where(c == target, 1.0, 0.0)) / count
            tl.store(start + c, gradient.to(tl.bfloat16), mask=c < vocabulary)


class LinearCrossEntropy(torch.autograd.Function):
    """cross_entropy(hidden @ weight^T, targets, ignore_index=IGNORED)"""

    @staticmethod
    def forward(ctx, hidden, weight, targets, differentiate):
        want_hidden, want_weight = (differentiate and wanted for wanted in ctx.needs_input_grad[:2])
        counted = (targets.flatten() != IGNORED).nonzero().squeeze(1)
        rows = hidden.reshape(-1, hidden.shape[-1]).index_select(0, counted)
        targets = targets.flatten().index_select(0, counted)
        count, vocabulary = rows.shape[0], weight.shape[0]
        losses = rows.new_empty(count, dtype=torch.float32)
        logits = rows.new_empty(min(hidden.numel() // hidden.shape[-1], CHUNK), vocabulary)
        gradient = want_hidden or want_weight
        grad_rows = torch.empty_like(rows) if want_hidden else None
        grad_weight = None
        for start in range(0, count, CHUNK):
            part = slice(start, start + CHUNK)
            z = logits[: rows[part].shape[0]]
            torch.mm(rows[part], weight.t(), out=z)
            row_losses[(len(z),)](z, targets[part], losses[part], count, vocabulary, 4096, gradient, num_warps=8)
            if want_hidden:
                torch.mm(z, weight, out=grad_rows[part])
            if want_weight:
                grad_weight = z.t() @ rows[part] if start == 0 else grad_weight.addmm_(z.t(), rows[part])
        if want_weight and not count:
            grad_weight = torch.zeros_like(weight)
        ctx.save_for_backward(grad_rows, grad_weight, counted)
        ctx.shape = hidden.shape
        return losses.sum() / count

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        grad_rows, grad_weight, counted = ctx.saved_tensors
        grad_hidden = None
        if grad_rows is not None:
            grad_hidden = grad_rows.new_zeros(ctx.shape)
            grad_hidden.view(-1, ctx.shape[-1]).index_copy_(0, counted, grad_rows * grad_output)
        return grad_hidden, None if grad_weight is None else grad_weight * grad_output, None, None


class ModelNew(nn.Module):
    def __init__(self, hidden_size, vocabulary):
        super().__init__()
        self.weight = nn.Parameter((0.02 * torch.randn(vocabulary, hidden_size)).to(torch.bfloat16))

    def forward(self, hidden, targets):
        return LinearCrossEntropy.apply(hidden, self.weight, targets, torch.is_grad_enabled())
