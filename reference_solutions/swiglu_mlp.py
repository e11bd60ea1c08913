"""Linear -> SwiGLU -> Linear: cuBLAS's products with their biases, one Triton kernel between them in each direction.

Fused: silu(gate) * up forward; backward its two gradients with the sum over rows for b12. The products go to cuBLAS,
whose rate for these sizes no kernel of a few hundred lines reaches; each bias is added in the product's epilogue.
Triton rather than CUDA for the kernels between: a tile of rows and columns with its sum over rows is a few lines.

Bytes besides the products' own at full size, with H = 67 MB for one tensor of 4096 columns:

              eager                                                    here
    forward    5 H  (silu 2, product 3)                                3 H
    backward  14 H  (product 6, silu 3, concatenate 4, b12's sum 2)    5 H  (dhidden, gate, up, dgate, dup)

931 GFLOP in the products, both ways together, bound everything.

Time on one H200, from bytes at 3.8 TB/s and the products' 790 TFLOP/s, and measured:

                                                      least        measured
    products, 310 GFLOP forward, 621 GFLOP backward   1.18 ms      1.18 ms
    silu(gate) * up, 3 H                              53 us        46 us, partly from the L2 cache
    its gradients, 5 H                                88 us        96 us
    biases' sums, 27 MB                               7 us         28 us, all other kernels
    all                                               1.33 ms      1.35 ms of kernels, 1.385 ms a step

torch.compile takes 1.448 ms a step, with the same products, so that 1.23x is what no kernel around them could exceed.
1.2x would leave 27 us for all else. A kernel fused into a product saves two passes over H, 35 us in a direction. But at
the 690 TFLOP/s that Triton's products reach in `linear_cross_entropy`, the first product would lose 38 us and that of
dhidden 19 us. So 1.2x is out of reach.

Why the backward is right: with s = sigmoid(gate) and hidden = gate * s * up,

    dhidden = g @ w3        dup = dhidden * gate * s        dgate = dhidden * up * s * (1 + gate * (1 - s))
    dw3 = g^T @ hidden      dw12 = (dgate, dup)^T @ x       dx = (dgate, dup) @ w12

and the biases' gradients are sums over rows, in float32. hidden is kept: 67 MB that the backward need not write
again.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.autograd.function import once_differentiable

SHARES = 64
"""Of the rows in the backward, each with a partial sum of b12's gradient."""


@triton.jit
def swiglu(gate_ups, hiddens, size, width, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    at = i // width * (2 * width) + i % width
    gate = tl.load(gate_ups + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_ups + at + width, mask=inside, other=0.0).to(tl.float32)
    tl.store(hiddens + i, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=inside)


@triton.jit
def swiglu_backward(dhiddens, gate_ups, dgate_ups, dbiases, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A program takes some columns of every `num_programs(1)`-th tile of rows."""
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    sum_gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_up = tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        r = (row + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (r < rows) & (c < width)
        at = r * 2 * width + c
        dhidden = tl.load(dhiddens + r * width + c, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_ups + at, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(gate_ups + at + width, mask=inside, other=0.0).to(tl.float32)
        s = tl.sigmoid(gate)
        dgate = dhidden * up * s * (1 + gate * (1 - s))
        dup = dhidden * gate * s
        tl.store(dgate_ups + at, dgate.to(tl.bfloat16), mask=inside)
        tl.store(dgate_ups + at + width, dup.to(tl.bfloat16), mask=inside)
        sum_gate += dgate
        sum_up += dup
    partial = dbiases + tl.program_id(1) * 2 * width + c
    tl.store(partial, tl.sum(sum_gate, axis=0)[None, :], mask=c < width)
    tl.store(partial + width, tl.sum(sum_up, axis=0)[None, :], mask=c < width)


class SwigluMlp(torch.autograd.Function):
    """(silu(gate) * up) @ w3^T + b3, where gate and up are the halves of x @ w12^T + b12"""

    @staticmethod
    def forward(ctx, x, w12, b12, w3, b3):
        rows = x.reshape(-1, x.shape[-1])
        gate_up = torch.addmm(b12, rows, w12.t())
        hidden = gate_up.new_empty(rows.shape[0], w3.shape[1])
        grid = (triton.cdiv(hidden.numel(), 2048),)
        swiglu[grid](gate_up, hidden, hidden.numel(), hidden.shape[1], 2048, num_warps=8)
        ctx.save_for_backward(rows, gate_up, hidden, w12, w3)
        ctx.shape = x.shape
        return torch.addmm(b3, hidden, w3.t()).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        rows, gate_up, hidden, w12, w3 = ctx.saved_tensors
        want_x, want_w12, want_b12, want_w3, want_b3 = ctx.needs_input_grad
        g = g.reshape(-1, g.shape[-1])
        dx = dw12 = db12 = None
        if want_x or want_w12 or want_b12:
            dhidden = g @ w3
            dgate_up = torch.empty_like(gate_up)
            db12 = gate_up.new_empty(SHARES, gate_up.shape[1], dtype=torch.float32)
            count, width = hidden.shape
            swiglu_backward[(triton.cdiv(width, 256), SHARES)](dhidden, gate_up, dgate_up, db12, count, width, 4, 256)
            dx = (dgate_up @ w12).view(ctx.shape) if want_x else None
            dw12 = dgate_up.t() @ rows if want_w12 else None
            db12 = db12.sum(0).to(w12.dtype) if want_b12 else None
        return dx, dw12, db12, g.t() @ hidden if want_w3 else None, g.sum(0) if want_b3 else None


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w12 = nn.Linear(width, 2 * hidden, dtype=torch.bfloat16)
        self.w3 = nn.Linear(hidden, width, dtype=torch.bfloat16)

    def forward(self, x):
        return SwigluMlp.apply(x, self.w12.weight, self.w12.bias, self.w3.weight, self.w3.bias)
