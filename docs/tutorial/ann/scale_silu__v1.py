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
"""

kernels = load_inline("scale_silu_v1", cpp_sources=SOURCE, functions=["scale_silu"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return kernels.scale_silu(x, self.scale)
