"""The kestrel kernels for a CPU: the pointwise chain with forward and backward, gathered into the scale with atomics."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

leaky_chain_cpp_source = """
#include <ATen/Parallel.h>
#include <atomic>

#define NEG_SLOPE 0.2f

static void atomic_add(std::atomic<float>& target, float value) {
    float seen = target.load();
    while (!target.compare_exchange_weak(seen, seen + value)) {
    }
}

torch::Tensor leaky_chain_forward(torch::Tensor x, torch::Tensor scale) {
    auto y = torch::empty_like(x);
    const float* xp = x.data_ptr<float>();
    const float* sp = scale.data_ptr<float>();
    float* yp = y.data_ptr<float>();
    int64_t n_chan = x.size(1);
    int64_t volume = x.size(2) * x.size(3) * x.size(4);

    at::parallel_for(0, x.size(0) * n_chan, 1, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; plane++) {
            float s = sp[plane % n_chan];
            for (int64_t i = plane * volume; i < (plane + 1) * volume; i++) {
                float act1 = xp[i] > 0 ? xp[i] : xp[i] * NEG_SLOPE;
                float scaled = act1 * s;
                yp[i] = scaled > 0 ? scaled : scaled * NEG_SLOPE;
            }
        }
    });
    return y;
}

std::tuple<torch::Tensor, torch::Tensor> leaky_chain_backward(
    torch::Tensor x, torch::Tensor scale, torch::Tensor dy) {
    auto dx = torch::empty_like(x);
    auto dscale = torch::empty_like(scale);
    dy = dy.contiguous();
    const float* xp = x.data_ptr<float>();
    const float* sp = scale.data_ptr<float>();
    const float* dyp = dy.data_ptr<float>();
    float* dxp = dx.data_ptr<float>();
    int64_t n_chan = x.size(1);
    int64_t volume = x.size(2) * x.size(3) * x.size(4);
    std::vector<std::atomic<float>> sums(n_chan);
    for (auto& sum : sums) sum = 0.0f;

    at::parallel_for(0, x.size(0) * n_chan, 1, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; plane++) {
            int64_t c = plane % n_chan;
            float s = sp[c];
            for (int64_t row = 0; row < volume; row += 64) {
                float row_sum = 0.0f;
                for (int64_t j = row; j < std::min(row + 64, volume); j++) {
                    int64_t i = plane * volume + j;
                    float act1 = xp[i] > 0 ? xp[i] : xp[i] * NEG_SLOPE;
                    float d_scaled = dyp[i] * (act1 * s > 0 ? 1.0f : NEG_SLOPE);
                    dxp[i] = d_scaled * s * (xp[i] > 0 ? 1.0f : NEG_SLOPE);
                    row_sum += d_scaled * act1;
                }
                atomic_add(sums[c], row_sum);
            }
        }
    });

    for (int64_t c = 0; c < n_chan; c++) dscale.data_ptr<float>()[c] = sums[c];
    return std::make_tuple(dx, dscale);
}
"""

leaky_chain = load_inline(
    name="leaky_chain_cpu",
    cpp_sources=leaky_chain_cpp_source,
    functions=["leaky_chain_forward", "leaky_chain_backward"],
    extra_cflags=["-O3"],
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
        return self.max_pool(x)
