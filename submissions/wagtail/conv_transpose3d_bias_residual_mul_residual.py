"""The residual chain simplified by hand to c * (2c + b + 1) and computed in one forward kernel."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

residual_chain_cuda_source = """
#include <torch/types.h>
#include <cuda_runtime.h>

__global__ void residual_chain_kernel(
    const float* conv, const float* bias, float* out,
    int N, int C, int D, int H, int W) {

    int gid = blockIdx.x * blockDim.x + threadIdx.x;
    if (gid >= N * C * D * H * W) return;

    int ch = (gid / (W * H * D)) % C;

    // ((c + b) + c) * c + c  ==  c * (2c + b + 1)
    float c = conv[gid];
    out[gid] = c * (2 * c + bias[ch] + 1);
}

torch::Tensor residual_chain(torch::Tensor conv, torch::Tensor bias) {
    int N = conv.size(0);
    int C = conv.size(1);
    int D = conv.size(2);
    int H = conv.size(3);
    int W = conv.size(4);

    auto out = torch::empty_like(conv);

    int count = N * C * D * H * W;
    const int threads = 256;
    const int blocks = (count + threads - 1) / threads;

    residual_chain_kernel<<<blocks, threads>>>(
        conv.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), N, C, D, H, W);

    return out;
}
"""

residual_chain_cpp_source = "torch::Tensor residual_chain(torch::Tensor conv, torch::Tensor bias);"

residual_chain = load_inline(
    name="residual_chain",
    cpp_sources=residual_chain_cpp_source,
    cuda_sources=residual_chain_cuda_source,
    functions=["residual_chain"],
    verbose=True,
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super(ModelNew, self).__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.residual_chain = residual_chain

    def forward(self, x):
        x = self.conv_transpose(x)
        return self.residual_chain.residual_chain(x, self.bias)
