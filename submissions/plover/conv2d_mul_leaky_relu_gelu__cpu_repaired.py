"""The plover design for a CPU, repaired: exact GELU, forward and backward, over strided accessors."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

scale_act_cpp_source = """
#include <cmath>

torch::Tensor scale_act_forward(torch::Tensor inp, torch::Tensor mult) {
    auto out = torch::empty_like(inp);
    auto x = inp.accessor<float, 4>();
    auto m = mult.accessor<float, 3>();
    auto y = out.accessor<float, 4>();
    for (int64_t n = 0; n < x.size(0); n++)
        for (int64_t c = 0; c < x.size(1); c++)
            for (int64_t h = 0; h < x.size(2); h++)
                for (int64_t w = 0; w < x.size(3); w++) {
                    float z = x[n][c][h][w] * m[c][0][0];
                    float a = (z > 0) ? z : 0.01f * z;
                    y[n][c][h][w] = 0.5f * a * (1.0f + std::erf(a * (float)M_SQRT1_2));
                }
    return out;
}

std::vector<torch::Tensor> scale_act_backward(torch::Tensor grad_out, torch::Tensor inp, torch::Tensor mult) {
    auto grad_inp = torch::empty_like(inp);
    auto grad_mult = torch::zeros_like(mult);
    auto g = grad_out.accessor<float, 4>();
    auto x = inp.accessor<float, 4>();
    auto m = mult.accessor<float, 3>();
    auto gx = grad_inp.accessor<float, 4>();
    auto gm = grad_mult.accessor<float, 3>();
    const float inv_sqrt_2pi = 0.3989422804f;
    for (int64_t c = 0; c < x.size(1); c++) {
        double total = 0;
        for (int64_t n = 0; n < x.size(0); n++)
            for (int64_t h = 0; h < x.size(2); h++)
                for (int64_t w = 0; w < x.size(3); w++) {
                    float v = x[n][c][h][w];
                    float z = v * m[c][0][0];
                    float a = (z > 0) ? z : 0.01f * z;
                    float cdf = 0.5f * (1.0f + std::erf(a * (float)M_SQRT1_2));
                    float pdf = inv_sqrt_2pi * std::exp(-0.5f * a * a);
                    float common = g[n][c][h][w] * (cdf + a * pdf) * ((z > 0) ? 1.0f : 0.01f);
                    gx[n][c][h][w] = common * m[c][0][0];
                    total += common * v;
                }
        gm[c][0][0] = total;
    }
    return {grad_inp, grad_mult};
}
"""

scale_act = load_inline(
    name="scale_act_cpu_repaired",
    cpp_sources=scale_act_cpp_source,
    functions=["scale_act_forward", "scale_act_backward"],
    extra_cflags=["-O3"],
)


class ScaleAct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, mult):
        ctx.save_for_backward(inp, mult)
        return scale_act.scale_act_forward(inp, mult)

    @staticmethod
    def backward(ctx, grad_out):
        inp, mult = ctx.saved_tensors
        grad_inp, grad_mult = scale_act.scale_act_backward(grad_out, inp, mult)
        return grad_inp, grad_mult


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, multiplier_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))

    def forward(self, x):
        return ScaleAct.apply(self.conv(x), self.multiplier)
