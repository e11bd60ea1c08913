"""Launches on the default stream, whatever the current one is."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>

__global__ void forward_kernel(const float* x, const float* scale, const float* bias, float* y, int n, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] * scale[i % channels] + bias[i % channels], 0.0f);
}

__global__ void backward_kernel(const float* grad_output, const float* x, const float* scale, const float* y,
                                float* grad_x, float* products, float* masked, int n, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = y[i] > 0 ? grad_output[i] : 0.0f;
    grad_x[i] = g * scale[i % channels];
    products[i] = g * x[i];
    masked[i] = g;
}

torch::Tensor forward(torch::Tensor x, torch::Tensor scale, torch::Tensor bias) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    forward_kernel<<<(n + 255) / 256, 256>>>(
        x.data_ptr<float>(), scale.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), n, scale.numel());
    return y;
}

std::vector<torch::Tensor> backward(torch::Tensor grad_output, torch::Tensor x, torch::Tensor scale, torch::Tensor y) {
    auto grad_x = torch::empty_like(x), products = torch::empty_like(x), masked = torch::empty_like(x);
    int n = x.numel();
    backward_kernel<<<(n + 255) / 256, 256>>>(
        grad_output.data_ptr<float>(), x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(),
        grad_x.data_ptr<float>(), products.data_ptr<float>(), masked.data_ptr<float>(), n, scale.numel());
    return {grad_x, products.sum(at::IntArrayRef({0, 1})), masked.sum(at::IntArrayRef({0, 1}))};
}
"""

cpp_source = """
torch::Tensor forward(torch::Tensor x, torch::Tensor scale, torch::Tensor bias);
std::vector<torch::Tensor> backward(torch::Tensor grad_output, torch::Tensor x, torch::Tensor scale, torch::Tensor y);
"""

kernels = load_inline(
    name="scale_bias_relu_cuda", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["forward", "backward"]
)


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = kernels.forward(x, scale, bias)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        return tuple(kernels.backward(grad_output.contiguous(), x, scale, y))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
