"""silu(x * scale) in the CuTe DSL, forward and backward."""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from torch import nn
from torch.autograd.function import once_differentiable

THREADS = 128


@cute.kernel
def silu_kernel(x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rows, columns = x.shape
    i = block * THREADS + thread
    if i < rows * columns:
        z = x[i // columns, i % columns] * scale[i % columns]
        y[i // columns, i % columns] = z / (1.0 + cute.math.exp(-z))


@cute.jit
def silu(x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    blocks = (cute.size(x) + THREADS - 1) // THREADS
    silu_kernel(x, scale, y).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.kernel
def silu_backward_kernel(g: cute.Tensor, x: cute.Tensor, scale: cute.Tensor, dx: cute.Tensor, dscale: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rows, columns = x.shape
    c = block * THREADS + thread
    if c < columns:
        total = cutlass.Float32(0.0)
        for r in range(rows):
            z = x[r, c] * scale[c]
            s = 1.0 / (1.0 + cute.math.exp(-z))
            dz = g[r, c] * s * (1.0 + z * (1.0 - s))
            dx[r, c] = dz * scale[c]
            total += dz * x[r, c]
        dscale[c] = total


@cute.jit
def silu_backward(
    g: cute.Tensor, x: cute.Tensor, scale: cute.Tensor, dx: cute.Tensor, dscale: cute.Tensor, stream: cuda.CUstream
):
    blocks = (cute.size(dscale) + THREADS - 1) // THREADS
    silu_backward_kernel(g, x, scale, dx, dscale).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


compiled = {}


def call(function, *tensors):
    """Compile for these shapes, and run on PyTorch's stream."""
    tensors = [from_dlpack(tensor.detach()) for tensor in tensors]
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    key = function, *(tuple(tensor.shape) for tensor in tensors)
    if key not in compiled:
        compiled[key] = cute.compile(function, *tensors, stream)
    compiled[key](*tensors, stream)


def forward(x, scale):
    y = torch.empty_like(x)
    call(silu, x, scale, y)
    return y


def backward(g, x, scale):
    dx, dscale = torch.empty_like(x), torch.empty_like(scale)
    call(silu_backward, g, x, scale, dx, dscale)
    return dx, dscale


class ScaleSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        x = x.contiguous()
        ctx.save_for_backward(x, scale)
        return forward(x, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return backward(grad_output.contiguous(), *ctx.saved_tensors)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return ScaleSilu.apply(x, self.scale)
