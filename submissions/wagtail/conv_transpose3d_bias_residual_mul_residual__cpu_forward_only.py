"""c * (2c + b + 1) in one loop on a CPU, forward only."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

residual_chain_cpp_source = """
torch::Tensor residual_chain(torch::Tensor conv, torch::Tensor bias) {
    auto out = torch::empty_like(conv);
    const float* c = conv.data_ptr<float>();
    const float* b = bias.data_ptr<float>();
    float* o = out.data_ptr<float>();
    int64_t channels = conv.size(1);
    int64_t volume = conv.size(2) * conv.size(3) * conv.size(4);
    for (int64_t i = 0; i < conv.numel(); i++) {
        o[i] = c[i] * (2 * c[i] + b[(i / volume) % channels] + 1);
    }
    return out;
}
"""

residual_chain = load_inline(
    name="residual_chain_cpu",
    cpp_sources=residual_chain_cpp_source,
    functions=["residual_chain"],
    extra_cflags=["-O3"],
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
