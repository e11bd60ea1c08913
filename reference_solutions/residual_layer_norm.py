"""Residual add -> LayerNorm in one Triton kernel forward; backward one, and a small one that adds up its sums.

Fused: everything. Triton rather than CUDA: a row is one block of registers of any width, and so are the two sums over
rows that a program keeps; the layout and the reductions need no code here, and memory bounds both kernels anyway.

Bytes at full size, with C = 67 MB for one tensor of rows:

              eager                                                     here
    forward    5 C  (add 3, LayerNorm 2)                                3 C
    backward   5 C  (grad_output and the sum twice, dh once)            3 C  (output, grad_output, dh)
    kept       1 C  (the sum)                                           0    (x, residual and output are there anyway)

Measured on one H200 (torch 2.11.0, triton 3.6.0, 2026-11-25), caches flushed, each kernel alone in these blocks:

    copy of one tensor    35.7 us    3.8 TB/s
    forward               52.3 us    3.85 TB/s    memory's limit; torch.compile's forward takes 52.5 us
    backward              63.0 us    3.2 TB/s     while a program sums over its row, it has no loads in flight
    sum of its partials    7.4 us                 an empty kernel takes 2.9 us

A step takes 119.7 us, torch.compile's 140.7 us, 1.18x. The forward cannot be faster than torch.compile's, and a step
takes 52.3 + 52.3 us and the sums at the least, 1.3x.

Why the backward is right: with n = (h - mean) * r, r = 1 / sqrt(var + eps), and means over a row's columns,

    dL/dn = g * weight        dL/dh = r * (dL/dn - mean(dL/dn) - n * mean(dL/dn * n))
    dL/dweight = sum over rows of g * n        dL/dbias = sum over rows of g

because dmean/dh_j = 1 / columns and dr/dh_j = -r^2 n_j / columns. dL/dx = dL/dresidual = dL/dh, one tensor for both.

Where n comes from: n = (output - bias) / weight reads one tensor, n = (x + residual - mean) * r two. The output is
n * weight + bias with one rounding, so the first is off by at most 2^-24 (2 |n| + |bias / weight|), as little as the
second where |bias| <= |weight|. In the other columns, and if the output was changed since, n comes from x and residual;
the kernel decides for each column, and loads nothing that it does not use.

Each program adds up the rows that it takes in a fixed order and writes one partial sum of each kind; a sum of those
in a fixed order makes the gradients the same in every run.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.autograd.function import once_differentiable

PROGRAMS = 528
"""Rows are dealt to this many programs backward: four for each of an H200's multiprocessors."""
STAGES = 1
"""Rows of which a program has loads in flight backward."""


@triton.jit
def layer_norm(xs, residuals, weights, biases, ys, means, inverses, columns, eps, BLOCK: tl.constexpr):
    """A program normalizes a row."""
    c = tl.arange(0, BLOCK)
    inside = c < columns
    row = tl.program_id(0).to(tl.int64)
    i = row * columns + c
    h = tl.load(xs + i, mask=inside, other=0.0) + tl.load(residuals + i, mask=inside, other=0.0)
    weight = tl.load(weights + c, mask=inside, other=0.0)
    bias = tl.load(biases + c, mask=inside, other=0.0)
    mean = tl.sum(h, axis=0) / columns
    centred = tl.where(inside, h - mean, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    tl.store(ys + i, centred * inverse * weight + bias, mask=inside)
    tl.store(means + row, mean)
    tl.store(inverses + row, inverse)


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def layer_norm_backward(
    gs, ys, xs, residuals, weights, biases, means, inverses, dhs, partials, rows, columns, unchanged,
    WANT_ROWS: tl.constexpr, WANT_SUMS: tl.constexpr, STAGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program differentiates every `num_programs`-th row and sums what these give to weight and bias.

    `unchanged` is whether ys still has the output.
    """
    c = tl.arange(0, BLOCK)
    inside = c < columns
    weight = tl.load(weights + c, mask=inside, other=1.0)
    bias = tl.load(biases + c, mask=inside, other=0.0)
    size = tl.abs(weight)
    inverts = (tl.abs(bias) <= size) & (size > 1e-18) & (size < 1e18) & (unchanged != 0)
    inverted = 1.0 / tl.where(inverts, weight, 1.0)
    with_y, with_x = inside & inverts, inside & (inverts == 0)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dbias = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        i = tl.cast(row, tl.int64) * columns + c
        g = tl.load(gs + i, mask=inside, other=0.0)
        y = tl.load(ys + i, mask=with_y, other=0.0)
        h = tl.load(xs + i, mask=with_x, other=0.0) + tl.load(residuals + i, mask=with_x, other=0.0)
        inverse = tl.load(inverses + row)
        n = tl.where(inverts, (y - bias) * inverted, (h - tl.load(means + row)) * inverse)
        n = tl.where(inside, n, 0.0)
        if WANT_ROWS:
            dn = g * weight
            of_dn, of_product = tl.reduce((dn, dn * n), 0, add_pairs)
            dh = inverse * (dn - of_dn / columns - n * (of_product / columns))
            tl.store(dhs + i, dh, mask=inside)
        dweight += g * n
        dbias += g
    if WANT_SUMS:
        partial = partials + tl.program_id(0) * 2 * columns + c
        tl.store(partial, dweight, mask=inside)
        tl.store(partial + columns, dbias, mask=inside)


@triton.jit
def add_partials(partials, sums, count, size, PARTIALS: tl.constexpr, BLOCK: tl.constexpr):
    """A program adds up some columns of the (count, size) partials."""
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((PARTIALS, BLOCK), tl.float32)
    for start in range(0, count, PARTIALS):
        p = start + tl.arange(0, PARTIALS)
        at = p[:, None] * size + c[None, :]
        total += tl.load(partials + at, mask=(p[:, None] < count) & (c[None, :] < size), other=0.0)
    tl.store(sums + c, tl.sum(total, axis=0), mask=c < size)


def shape(columns, elements):
    """The block for a row, and as many warps as give each thread so many elements."""
    block = triton.next_power_of_2(columns)
    return {"BLOCK": block, "num_warps": min(max(block // (32 * elements), 1), 16)}


def backward_shape(columns):
    """Four elements a thread; in 64 registers, where these hold all, so that a multiprocessor has 1024 threads."""
    block = shape(columns, 4)
    return {**block, "STAGES": STAGES, **({"maxnreg": 64} if block["BLOCK"] <= 128 * block["num_warps"] else {})}


class ResidualLayerNorm(torch.autograd.Function):
    """LayerNorm(x + residual)"""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        x, residual, weight, bias = x.contiguous(), residual.contiguous(), weight.contiguous(), bias.contiguous()
        columns, rows = x.shape[-1], x.numel() // x.shape[-1]
        y = torch.empty_like(x)
        means, inverses = x.new_empty(rows), x.new_empty(rows)
        layer_norm[(rows,)](x, residual, weight, bias, y, means, inverses, columns, eps, **shape(columns, 16))
        ctx.save_for_backward(x, residual, weight, bias, means, inverses)
        # not by save_for_backward, which would forbid to change the output
        ctx.y, ctx.version = y.detach(), y._version
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, residual, weight, bias, means, inverses = ctx.saved_tensors
        want_x, want_residual, want_weight, want_bias, _ = ctx.needs_input_grad
        want_rows, want_sums = want_x or want_residual, want_weight or want_bias
        columns, rows = x.shape[-1], x.numel() // x.shape[-1]
        programs = min(rows, PROGRAMS)
        dh = torch.empty_like(x) if want_rows else None
        partials = x.new_empty(programs, 2, columns) if want_sums else None
        layer_norm_backward[(programs,)](
            g.contiguous(), ctx.y, x, residual, weight, bias, means, inverses, dh, partials, rows, columns,
            int(ctx.y._version == ctx.version), want_rows, want_sums, **backward_shape(columns),
        )  # fmt: skip
        dweight = dbias = None
        if want_sums:
            dweight, dbias = sums = x.new_empty(2, columns)
            add_partials[(triton.cdiv(2 * columns, 8),)](partials, sums, programs, 2 * columns, 512, 8)
        return (
            dh if want_x else None,
            dh if want_residual else None,
            dweight if want_weight else None,
            dbias if want_bias else None,
            None,
        )


class ModelNew(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps)

    def forward(self, x, residual):
        return ResidualLayerNorm.apply(x, residual, self.norm.weight, self.norm.bias, self.norm.eps)
