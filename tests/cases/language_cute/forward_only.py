"""silu(x * scale) in the CuTe DSL, without a backward."""

import cuda.bindings.driver as cuda
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from torch import nn

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


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return forward(x.contiguous(), self.scale)
