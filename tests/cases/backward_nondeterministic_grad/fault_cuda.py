"""One atomicAdd for each element of the sum."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>

__global__ void scale_gradient_kernel(const float* grad_output, const float* x, float* sums, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&sums[i % columns], grad_output[i] * x[i]);
}

torch::Tensor scale_gradient(torch::Tensor grad_output, torch::Tensor x) {
    auto sums = torch::zeros({x.size(1)}, x.options());
    int n = x.numel();
    scale_gradient_kernel<<<(n + 63) / 64, 64, 0, at::cuda::getCurrentCUDAStream()>>>(
        grad_output.data_ptr<float>(), x.data_ptr<float>(), sums.data_ptr<float>(), n, x.size(1));
    return sums;
}
"""

kernels = load_inline(
    name="scale_gradient_cuda",
    cpp_sources="torch::Tensor scale_gradient(torch::Tensor grad_output, torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["scale_gradient"],
)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * scale, kernels.scale_gradient(grad_output.contiguous(), x)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return Scale.apply(x, self.scale)
