"""The osprey design for a CPU: a forward, a gradient of the multiplier that nobody calls, and no link to autograd."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

fused_chain_cpp_source = """
#include <ATen/Parallel.h>

torch::Tensor fused_chain(torch::Tensor in, torch::Tensor mult) {
    TORCH_CHECK(in.dim() == 5, "input must be 5D");
    TORCH_CHECK(mult.size(0) == in.size(1), "one multiplier per channel");
    auto out = torch::empty_like(in);
    int64_t C = in.size(1);
    int64_t volume = in.size(2) * in.size(3) * in.size(4);

    AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "fused_chain", ([&] {
        const scalar_t* src = in.data_ptr<scalar_t>();
        const scalar_t* m = mult.data_ptr<scalar_t>();
        scalar_t* dst = out.data_ptr<scalar_t>();
        const scalar_t slope = static_cast<scalar_t>(0.2);
        at::parallel_for(0, in.size(0) * C, 1, [&](int64_t begin, int64_t end) {
            for (int64_t p = begin; p < end; p++) {
                for (int64_t i = p * volume; i < (p + 1) * volume; i++) {
                    scalar_t y1 = src[i] > 0 ? src[i] : src[i] * slope;
                    scalar_t y2 = y1 * m[p % C];
                    dst[i] = y2 > 0 ? y2 : y2 * slope;
                }
            }
        });
    }));
    return out;
}

torch::Tensor grad_mult(torch::Tensor grad_out, torch::Tensor in, torch::Tensor mult) {
    auto grad = torch::zeros_like(mult);
    int64_t C = in.size(1);
    int64_t volume = in.size(2) * in.size(3) * in.size(4);

    AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "grad_mult", ([&] {
        const scalar_t* g = grad_out.data_ptr<scalar_t>();
        const scalar_t* src = in.data_ptr<scalar_t>();
        const scalar_t* m = mult.data_ptr<scalar_t>();
        scalar_t* dst = grad.data_ptr<scalar_t>();
        const scalar_t slope = static_cast<scalar_t>(0.2);
        for (int64_t i = 0; i < in.numel(); i++) {
            int64_t c = (i / volume) % C;
            scalar_t y1 = src[i] > 0 ? src[i] : src[i] * slope;
            dst[c] += g[i] * (y1 * m[c] > 0 ? static_cast<scalar_t>(1) : slope) * y1;
        }
    }));
    return grad;
}
"""

fused_chain_ext = load_inline(
    name="fused_chain_ext_cpu",
    cpp_sources=fused_chain_cpp_source,
    functions=["fused_chain", "grad_mult"],
    extra_cflags=["-O3"],
)


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
        x = fused_chain_ext.fused_chain(x, self.multiplier.view(-1))
        return self.max_pool(x)
