"""silu(x * scale) as a RawKernel of CuPy, without a backward."""

import cupy
import numpy
import torch
from torch import nn

SOURCE = """
extern "C" __global__ void silu(const float* x, const float* scale, float* y, long long size, long long columns) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= size) return;
  const float z = x[i] * scale[i % columns];
  y[i] = z / (1 + expf(-z));
}
"""
silu = cupy.RawKernel(SOURCE, "silu")


def launch(kernel, blocks, threads, *arguments):
    """On PyTorch's stream; tensors by address."""
    words = [word.data_ptr() if isinstance(word, torch.Tensor) else numpy.int64(word) for word in arguments]
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        kernel((blocks,), (threads,), tuple(words))


def forward(x, scale):
    y = torch.empty_like(x)
    launch(silu, (x.numel() + 255) // 256, 256, x.detach(), scale.detach(), y, x.numel(), x.shape[1])
    return y


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return forward(x.contiguous(), self.scale)
