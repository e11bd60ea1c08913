"""The plover design for a CPU, with the mistake that stopped it: a checking macro that nobody defines."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

scale_act_cpp_source = """
#include <cmath>

template <typename scalar_t>
void run_forward(torch::Tensor inp, torch::Tensor mult, torch::Tensor out) {
    auto x = inp.accessor<scalar_t, 4>();
    auto m = mult.accessor<scalar_t, 4>();
    auto y = out.accessor<scalar_t, 4>();
    for (int64_t n = 0; n < x.size(0); n++)
        for (int64_t c = 0; c < x.size(1); c++)
            for (int64_t h = 0; h < x.size(2); h++)
                for (int64_t w = 0; w < x.size(3); w++) {
                    scalar_t z = x[n][c][h][w] * m[c][0][0][0];
                    scalar_t a = (z > 0) ? z : 0.01 * z;
                    y[n][c][h][w] = 0.5 * a * (1.0 + std::erf(a / std::sqrt(2.0)));
                }
    CPU_KERNEL_CHECK();
}

torch::Tensor scale_act_forward(torch::Tensor inp, torch::Tensor mult) {
    auto out = torch::empty_like(inp);
    run_forward<float>(inp, mult, out);
    return out;
}
"""

scale_act = load_inline(
    name="scale_act_cpu",
    cpp_sources=scale_act_cpp_source,
    functions=["scale_act_forward"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, multiplier_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))

    def forward(self, x):
        return scale_act.scale_act_forward(self.conv(x), self.multiplier)
