import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>

torch::Tensor scale_silu(torch::Tensor x, torch::Tensor scale) {
    auto y = torch::empty_like(x);
    const float *xs = x.data_ptr<float>(), *ss = scale.data_ptr<float>();
    float *ys = y.data_ptr<float>();
    const int64_t rows = x.size(0), columns = x.size(1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const float z = xs[r * columns + c] * ss[c];
            ys[r * columns + c] = z / (1.0f + std::exp(-z));
        }
    return y;
}

// d silu(z) / dz = s (1 + z (1 - s)) with s = sigmoid(z); scale's gradient is summed over the rows.
std::vector<torch::Tensor> scale_silu_backward(torch::Tensor g, torch::Tensor x, torch::Tensor scale) {
    auto dx = torch::empty_like(x);
    auto sums = torch::zeros({x.size(1)}, x.options().dtype(torch::kFloat64));
    const float *gs = g.data_ptr<float>(), *xs = x.data_ptr<float>(), *ss = scale.data_ptr<float>();
    float *dxs = dx.data_ptr<float>();
    double *total = sums.data_ptr<double>();
    const int64_t rows = x.size(0), columns = x.size(1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t i = r * columns + c;
            const float z = xs[i] * ss[c];
            const float s = 1.0f / (1.0f + std::exp(-z));
            const float dz = gs[i] * s * (1.0f + z * (1.0f - s));
            dxs[i] = dz * ss[c];
            total[c] += dz * xs[i];
        }
    return {dx, sums.to(torch::kFloat32)};
}
"""

kernels = load_inline(
    "scale_silu_v2", cpp_sources=SOURCE, functions=["scale_silu", "scale_silu_backward"], extra_cflags=["-O3"]
)


class ScaleSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return kernels.scale_silu(x, scale)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        dx, dscale = kernels.scale_silu_backward(grad_output.contiguous(), x, scale)
        return dx, dscale


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return ScaleSilu.apply(x, self.scale)
