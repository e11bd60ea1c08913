"""A transposed convolution on tensor cores, with + bias -> + o -> * o -> + o, o = detach(convolved), on its sums.

Fused: everything forward; the detached copy is never made. Backward, one pass makes dL/dc and its sum; two products of
dL/dc follow. Per axis, an even output takes one tap of one input, an odd output two taps of two: a warp makes the eight
kinds of output of 32 neighbouring inputs in turn, with 1 to 8 taps each, so that nothing is multiplied by zero.

For other sizes, and where PyTorch's flags forbid TensorFloat-32, cuDNN convolves and one kernel does the rest.

Bytes and operations at full size, with C = 537 MB for the convolved tensor (x is C / 16):

              eager                                                    here
    forward   14 C  (convolution 1, a copy 2, + bias 2, binaries 9)    2 C  (c, output)
    backward   6 C  (g * o 3, a sum 1, two products 2)                 5 C  (one pass 3, two products 2)
    kept       1 C  (o)                                                1 C  (c)
    FLOPs     3 * 29 G                                                 3 * 29 G

Why the backward is right: o is a constant to autograd, whatever it was copied from. So with y = ((c + b) + o) * o + o,

    dL/dc = g * o        dL/db = sum of g * o = dL/d(the convolution's bias)        where o = c

The derivative of c * (2c + b + 1), which has the same values, would be another one: g * (4c + b + 1). With w for the
weights, and output 2i - 1 + t for tap t of input i along each axis,

    dL/dx[n, i] = sum over o and t of w[n, o, t] * dL/dc[o, 2i - 1 + t]
    dL/dw[n, o, t] = sum over i of x[n, i] * dL/dc[o, 2i - 1 + t]

Blocks write partial sums; fixed-order sums over those make the gradients the same in every run.
On an H100: forward 0.32 ms (1.8 TB/s, 90 TFLOP/s; 0.45 if c is kept: 2.5 TB/s), dL/dx 0.33 ms
(86 TFLOP/s), dL/dw 0.46 ms (63 TFLOP/s, bound by reads of shared memory), the pass between 0.55 ms (2.9 TB/s).
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor> forward(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& convolution_bias,
    const torch::Tensor& bias, int64_t output_padding, bool keep_convolved);

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> backward(
    const torch::Tensor& grad_output, const torch::Tensor& x, const torch::Tensor& weight,
    const torch::Tensor& convolved, int64_t output_padding, bool want_x, bool want_weight);
"""

CUDA_SOURCE = r"""
#include <tuple>

#include <kernels/convolutions.cuh>
#include <kernels/pointwise.cuh>

namespace {

using namespace host;
using namespace pointwise;
using tensor_cores::Volumes;

constexpr int kIn = 32, kOut = 64;  // channels for which the tensor cores' kernels are made

__device__ __forceinline__ float residual(float o, float b) { return ((o + b) + o) * o + o; }

// Takes the convolution's sums where they are made: adds its bias, writes c if it is kept, and writes the output.
struct Residual {
  const float *convolution_bias, *bias;
  float *convolved, *output;
  Volumes volumes;

  __device__ void take(int parity, int sample, int channel, int z, int y, int x, const float (&sums)[4], int, int,
                       int) const {
    if (x >= volumes.width) return;
    const int64_t depth = (int64_t(sample) * kOut + channel) * volumes.out_depth + 2 * z + parity / 2;
    const int64_t at = (depth * volumes.out_height + 2 * y + parity % 2) * volumes.out_width + 2 * x;
    const float own = convolution_bias[channel], b = bias[channel];
    const float4 c = make_float4(sums[0] + own, sums[1] + own, sums[2] + own, sums[3] + own);
    if (convolved != nullptr) __stcs(reinterpret_cast<float4*>(convolved + at), c);
    __stcs(reinterpret_cast<float4*>(output + at),
           make_float4(residual(c.x, b), residual(c.y, b), residual(c.z, b), residual(c.w, b)));
  }
  __device__ void finish(int, int, int, int, int) const {}
};

// blockIdx.x is the (sample, channel) volume; blockIdx.y shares out its packs.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) residual_forward_kernel(
    const float* __restrict__ convolved, const float* __restrict__ bias, float* __restrict__ output, int64_t volume,
    int channels) {
  const int64_t plane = blockIdx.x;
  const float b = bias[plane % channels];
  const auto* c = packs_of<WIDTH>(convolved + plane * volume);
  auto* y = packs_of<WIDTH>(output + plane * volume);

  for (int64_t i = first_of_plane(); i < volume / WIDTH; i += stride_in_plane()) {
    Pack<WIDTH> pack = c[i];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) pack.value[k] = residual(pack.value[k], b);
    y[i] = pack;
  }
}

// g * o, and a block's sum of it.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) residual_backward_kernel(
    const float* __restrict__ grad_output, const float* __restrict__ convolved, float* __restrict__ grad_convolved,
    float* __restrict__ partial_sums, int64_t volume) {
  const int64_t plane = blockIdx.x;
  const auto* g = packs_of<WIDTH>(grad_output + plane * volume);
  const auto* o = packs_of<WIDTH>(convolved + plane * volume);
  auto* grad_c = packs_of<WIDTH>(grad_convolved + plane * volume);

  float2 sum{};
  for (int64_t i = first_of_plane(); i < volume / WIDTH; i += stride_in_plane()) {
    Pack<WIDTH> grad = read_once(g + i);
    const Pack<WIDTH> detached = read_once(o + i);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      grad.value[k] *= detached.value[k];
      sum.x += grad.value[k];
    }
    write_once(grad_c + i, grad);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial_sums[plane * gridDim.y + blockIdx.y] = sum.x;
}

bool fits_tensor_cores(const torch::Tensor& x, const torch::Tensor& weight, int64_t output_padding) {
  return allows_tensor_float() && output_padding == 1 && weight.size(0) == kIn &&
         weight.size(1) == kOut && x.size(4) % 4 == 0 && x.numel() >= (int64_t(1) << 22) &&
         starts_on_float4(x);
}

}  // namespace

std::tuple<torch::Tensor, torch::Tensor> forward(
    const torch::Tensor& x_, const torch::Tensor& weight_, const torch::Tensor& convolution_bias_,
    const torch::Tensor& bias_, int64_t output_padding, bool keep_convolved) {
  TORCH_CHECK(x_.dim() == 5, "x must have 5 dimensions, has ", x_.dim());
  check(x_, "x", x_);
  check(weight_, "weight", x_);
  check(convolution_bias_, "convolution_bias", x_);
  check(bias_, "bias", x_);
  TORCH_CHECK(bias_.numel() == weight_.size(1), "bias must have one element per channel");
  const c10::cuda::CUDAGuard guard(x_.device());
  const auto x = x_.contiguous(), weight = weight_.contiguous(), bias = bias_.contiguous();
  const auto convolution_bias = convolution_bias_.contiguous();

  if (fits_tensor_cores(x, weight, output_padding)) {
    const Volumes v = tensor_cores::volumes_of(x, output_padding);
    auto output = torch::empty({v.samples, kOut, v.out_depth, v.out_height, v.out_width}, x.options());
    auto convolved = torch::empty(keep_convolved ? output.sizes().vec() : std::vector<int64_t>{0}, x.options());
    const Residual sink{convolution_bias.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                        keep_convolved ? convolved.mutable_data_ptr<float>() : nullptr,
                        output.mutable_data_ptr<float>(), v};
    tensor_cores::conv_transpose3d<kIn, kOut, 2>(x, weight, v, sink);
    return {output, convolved};
  }

  const auto convolved =
      at::conv_transpose3d(x, weight, convolution_bias, {2, 2, 2}, {1, 1, 1},
                           {output_padding, output_padding, output_padding}).contiguous();
  auto output = torch::empty(convolved.sizes(), convolved.options());
  if (output.numel() == 0) return {output, convolved};
  const int64_t planes = convolved.size(0) * convolved.size(1), volume = convolved.numel() / planes;
  const bool vectorized = volume % 4 == 0;
  const auto kernel = vectorized ? residual_forward_kernel<4> : residual_forward_kernel<1>;
  const dim3 grid = plane_grid(planes, volume / (vectorized ? 4 : 1));
  launch(kernel, grid, kThreads, 0, convolved.const_data_ptr<float>(), bias.const_data_ptr<float>(),
         output.mutable_data_ptr<float>(), volume, int(convolved.size(1)));
  return {output, convolved};
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> backward(
    const torch::Tensor& grad_output_, const torch::Tensor& x_, const torch::Tensor& weight_,
    const torch::Tensor& convolved, int64_t output_padding, bool want_x, bool want_weight) {
  check(grad_output_, "grad_output", convolved);
  TORCH_CHECK(grad_output_.sizes() == convolved.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(convolved.device());
  const auto grad_output = grad_output_.contiguous(), x = x_.contiguous(), weight = weight_.contiguous();
  const int64_t samples = convolved.size(0), channels = convolved.size(1);
  if (convolved.numel() == 0) {
    return {torch::zeros_like(x), torch::zeros_like(weight), torch::zeros({channels}, weight.options())};
  }
  auto grad_convolved = torch::empty(convolved.sizes(), convolved.options());
  const int64_t volume = convolved.numel() / (samples * channels);
  const bool vectorized = volume % 4 == 0 && starts_on_float4(grad_output);
  const auto kernel = vectorized ? residual_backward_kernel<4> : residual_backward_kernel<1>;
  const dim3 grid = plane_grid(samples * channels, volume / (vectorized ? 4 : 1));
  auto partial_sums = torch::empty({samples, channels, int64_t(grid.y)}, convolved.options());
  launch(kernel, grid, kThreads, 0, grad_output.const_data_ptr<float>(), convolved.const_data_ptr<float>(),
         grad_convolved.mutable_data_ptr<float>(), partial_sums.mutable_data_ptr<float>(), volume);
  const auto grad_bias = partial_sums.sum(at::IntArrayRef({0, 2}));

  torch::Tensor grad_x, grad_weight;
  if (!fits_tensor_cores(x, weight, output_padding)) {
    if (want_x || want_weight) {
      std::tie(grad_x, grad_weight, std::ignore) = at::convolution_backward(
          grad_convolved, x, weight, std::nullopt, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, true,
          {output_padding, output_padding, output_padding}, 1, {want_x, want_weight, false});
    }
    return {grad_x, grad_weight, grad_bias};
  }
  const Volumes v = tensor_cores::volumes_of(x, output_padding);
  if (want_x) grad_x = tensor_cores::conv_transpose3d_input_gradient<kIn, kOut>(grad_convolved, x, weight, v);
  if (want_weight) {
    grad_weight = tensor_cores::conv_transpose3d_weight_gradient<kIn, kOut, 2, 88>(grad_convolved, x, v);
  }
  return {grad_x, grad_weight, grad_bias};
}
"""

kernels = load_inline(
    name="conv_transpose3d_bias_residual_mul_residual",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class ConvBiasResidualMulResidual(torch.autograd.Function):
    """((convolved + bias) + o) * o + o, where o is the detached convolved tensor"""

    @staticmethod
    def forward(ctx, x, weight, convolution_bias, bias, output_padding, keep_convolved):
        output, convolved = kernels.forward(x, weight, convolution_bias, bias, output_padding, keep_convolved)
        ctx.save_for_backward(x, weight, convolved)
        ctx.output_padding, ctx.bias_shape = output_padding, bias.shape
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        want_x, want_weight, want_convolution_bias, want_bias = ctx.needs_input_grad[:4]
        grad_x, grad_weight, grad_bias = kernels.backward(
            grad_output, *ctx.saved_tensors, ctx.output_padding, want_x, want_weight
        )
        grad_convolution_bias = grad_bias.clone() if want_convolution_bias else None
        grad_bias = grad_bias.view(ctx.bias_shape) if want_bias else None
        return grad_x, grad_weight, grad_convolution_bias, grad_bias, None, None


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.output_padding = output_padding

    def forward(self, x):
        convolution = self.conv_transpose
        return ConvBiasResidualMulResidual.apply(
            x, convolution.weight, convolution.bias, self.bias, self.output_padding, torch.is_grad_enabled()
        )
