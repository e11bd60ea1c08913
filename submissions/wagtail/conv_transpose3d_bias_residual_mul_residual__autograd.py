"""The residual chain simplified to c * (2c + b + 1), with a backward that differentiates what it was simplified to.

Right in the forward. But the chain's second operand is detached, so the gradient is g * c, not g * (4c + b + 1).
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

residual_grad_cuda_source = """
#include <torch/types.h>
#include <cuda_runtime.h>

__global__ void residual_forward_kernel(
    const float* conv, const float* bias, float* out, int count, int C, int spatial) {

    int gid = blockIdx.x * blockDim.x + threadIdx.x;
    if (gid >= count) return;

    float b = bias[(gid / spatial) % C];
    float c = conv[gid];
    out[gid] = c * (2 * c + b + 1);
}

__global__ void residual_backward_kernel(
    const float* grad_out, const float* conv, const float* bias,
    float* grad_conv, float* grad_bias_terms, int count, int C, int spatial) {

    int gid = blockIdx.x * blockDim.x + threadIdx.x;
    if (gid >= count) return;

    float b = bias[(gid / spatial) % C];
    float c = conv[gid];
    float g = grad_out[gid];

    // d/dc [2c^2 + (b + 1) c] = 4c + b + 1
    grad_conv[gid] = g * (4 * c + b + 1);
    // d/db = c
    grad_bias_terms[gid] = g * c;
}

torch::Tensor residual_forward(torch::Tensor conv, torch::Tensor bias) {
    auto out = torch::empty_like(conv);
    int count = conv.numel();
    int C = conv.size(1);
    int spatial = conv.size(2) * conv.size(3) * conv.size(4);
    const int threads = 256;
    const int blocks = (count + threads - 1) / threads;
    residual_forward_kernel<<<blocks, threads>>>(
        conv.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), count, C, spatial);
    return out;
}

std::vector<torch::Tensor> residual_backward(torch::Tensor grad_out, torch::Tensor conv, torch::Tensor bias) {
    grad_out = grad_out.contiguous();
    auto grad_conv = torch::empty_like(conv);
    auto grad_bias_terms = torch::empty_like(conv);
    int count = conv.numel();
    int C = conv.size(1);
    int spatial = conv.size(2) * conv.size(3) * conv.size(4);
    const int threads = 256;
    const int blocks = (count + threads - 1) / threads;
    residual_backward_kernel<<<blocks, threads>>>(
        grad_out.data_ptr<float>(), conv.data_ptr<float>(), bias.data_ptr<float>(),
        grad_conv.data_ptr<float>(), grad_bias_terms.data_ptr<float>(), count, C, spatial);
    return {grad_conv, grad_bias_terms.sum(at::IntArrayRef({0, 2, 3, 4})).view_as(bias)};
}
"""

residual_grad_cpp_source = """
torch::Tensor residual_forward(torch::Tensor conv, torch::Tensor bias);
std::vector<torch::Tensor> residual_backward(torch::Tensor grad_out, torch::Tensor conv, torch::Tensor bias);
"""

residual_grad = load_inline(
    name="residual_grad",
    cpp_sources=residual_grad_cpp_source,
    cuda_sources=residual_grad_cuda_source,
    functions=["residual_forward", "residual_backward"],
    verbose=True,
)


class ResidualChain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, conv, bias):
        ctx.save_for_backward(conv, bias)
        return residual_grad.residual_forward(conv, bias)

    @staticmethod
    def backward(ctx, grad_out):
        conv, bias = ctx.saved_tensors
        grad_conv, grad_bias = residual_grad.residual_backward(grad_out, conv, bias)
        return grad_conv, grad_bias


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super(ModelNew, self).__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv_transpose(x)
        return ResidualChain.apply(x, self.bias)
