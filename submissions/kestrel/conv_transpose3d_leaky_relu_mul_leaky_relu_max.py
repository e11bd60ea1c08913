"""The three pointwise operations in one kernel, with a backward kernel behind a torch.autograd.Function.

One thread per element, flat indexing. In the backward every thread adds its term onto its channel's address.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

leaky_chain_cuda_source = """
#include <torch/types.h>
#include <cuda_runtime.h>
#include <atomic>

#define NEG_SLOPE 0.2f

__global__ void leaky_chain_forward_kernel(
    const float* x, const float* scale, float* y,
    int n_batch, int n_chan, int n_d, int n_h, int n_w)
{
    int tid = blockIdx.x * blockDim.x + threadIdx.x;
    int total = n_batch * n_chan * n_d * n_h * n_w;
    if (tid >= total) return;

    int chan = (tid / (n_w * n_h * n_d)) % n_chan;

    // first activation
    float v = x[tid];
    float act1 = (v > 0) ? v : v * NEG_SLOPE;

    // per-channel scale
    float scaled = act1 * scale[chan];

    // second activation
    y[tid] = (scaled > 0) ? scaled : scaled * NEG_SLOPE;
}

__global__ void leaky_chain_backward_kernel(
    const float* x, const float* scale, const float* dy,
    float* dx, float* dscale,
    int n_batch, int n_chan, int n_d, int n_h, int n_w)
{
    int tid = blockIdx.x * blockDim.x + threadIdx.x;
    int total = n_batch * n_chan * n_d * n_h * n_w;
    if (tid >= total) return;

    int chan = (tid / (n_w * n_h * n_d)) % n_chan;

    // redo the forward pass instead of storing it
    float v = x[tid];
    float s = scale[chan];
    float act1 = (v > 0) ? v : v * NEG_SLOPE;
    float scaled = act1 * s;

    // through the second activation
    float d_scaled = dy[tid] * ((scaled > 0) ? 1.0f : NEG_SLOPE);

    // through the scale and the first activation
    float d_act1 = d_scaled * s;
    dx[tid] = (v > 0) ? d_act1 : d_act1 * NEG_SLOPE;

    // every element of the channel contributes to the same scale
    atomicAdd(&dscale[chan], d_scaled * act1);
}

torch::Tensor leaky_chain_forward(torch::Tensor x, torch::Tensor scale) {
    int n_batch = x.size(0);
    int n_chan = x.size(1);
    int n_d = x.size(2);
    int n_h = x.size(3);
    int n_w = x.size(4);

    auto y = torch::empty_like(x);

    int total = n_batch * n_chan * n_d * n_h * n_w;
    const int threads = 256;
    int blocks = (total + threads - 1) / threads;

    leaky_chain_forward_kernel<<<blocks, threads>>>(
        x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(),
        n_batch, n_chan, n_d, n_h, n_w);

    return y;
}

std::tuple<torch::Tensor, torch::Tensor> leaky_chain_backward(
    torch::Tensor x, torch::Tensor scale, torch::Tensor dy) {
    int n_batch = x.size(0);
    int n_chan = x.size(1);
    int n_d = x.size(2);
    int n_h = x.size(3);
    int n_w = x.size(4);

    auto dx = torch::zeros_like(x);
    auto dscale = torch::zeros_like(scale);

    int total = n_batch * n_chan * n_d * n_h * n_w;
    const int threads = 256;
    int blocks = (total + threads - 1) / threads;

    leaky_chain_backward_kernel<<<blocks, threads>>>(
        x.data_ptr<float>(), scale.data_ptr<float>(), dy.data_ptr<float>(),
        dx.data_ptr<float>(), dscale.data_ptr<float>(),
        n_batch, n_chan, n_d, n_h, n_w);

    return std::make_tuple(dx, dscale);
}
"""

leaky_chain_cpp_source = """
torch::Tensor leaky_chain_forward(torch::Tensor x, torch::Tensor scale);
std::tuple<torch::Tensor, torch::Tensor> leaky_chain_backward(
    torch::Tensor x, torch::Tensor scale, torch::Tensor dy);
"""

leaky_chain = load_inline(
    name="leaky_chain",
    cpp_sources=leaky_chain_cpp_source,
    cuda_sources=leaky_chain_cuda_source,
    functions=["leaky_chain_forward", "leaky_chain_backward"],
    verbose=True,
    extra_cflags=["-O3"],
    extra_ldflags=[""],
)


class LeakyChain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return leaky_chain.leaky_chain_forward(x, scale)

    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        dx, dscale = leaky_chain.leaky_chain_backward(x, scale, dy)
        return dx, dscale


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super(ModelNew, self).__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.max_pool = nn.MaxPool3d(kernel_size=2)

    def forward(self, x):
        x = self.conv_transpose(x)
        x = LeakyChain.apply(x, self.multiplier)
        x = self.max_pool(x)
        return x
