"""A transposed convolution on tensor cores, with LeakyReLU -> x multiplier -> LeakyReLU -> MaxPool3d(2) on its sums.

Fused: everything forward. The eight outputs that one input position starts are one pooling window, so that the thread
that makes them keeps the largest: the convolved tensor is never written. Kept of each window are the convolved value of
the largest output (the winner) and its place in the window, 0 to 7. Backward, one pass writes dL/dc, seven of eight
values zero, and two products of it follow.

For other sizes, and where PyTorch's flags forbid TensorFloat-32, cuDNN convolves and one kernel does the rest.

Bytes and operations at full size, with C = 268 MB for the convolved tensor and P = C / 8 (x is P / 2):

               eager                                                       here
    forward    8 C + 3 P  (convolution 1, three passes 6, pooling)         2.75 P
    backward  15 C + 3 P  (fill, scatter, four passes, a sum, products)    3 C + 2.25 P
    kept       4 C + 2 P                                                   1.25 P
    FLOPs     3 * 7.2 G                                                    3 * 7.2 G

Why the backward is right: pooling hands the gradient g of a window to the winner alone, so the other seven gradients
are zero whatever their values were. For the winner x, with a = leaky(x), z = a * m, y = leaky(z):

    dL/dx = g * leaky'(z) * m * leaky'(x)        dL/dm = sum of g * leaky'(z) * a

both functions of x, m and g. leaky'(0) is the slope, the first of equal values wins, and a NaN wins over numbers: all
as in PyTorch. dL/dc, made of these, gives the gradients of the convolution: for tap t of input i, output 2i - 1 + t,

    dL/dinput[n, i] = sum over o and t of w[n, o, t] * dL/dc[o, 2i - 1 + t]        dL/dbias = sum of dL/dc
    dL/dw[n, o, t] = sum over i of input[n, i] * dL/dc[o, 2i - 1 + t]

Blocks write partial sums; fixed-order sums over those make the gradients the same in every run.
On an H100: forward 0.14 ms (52 TFLOP/s, bound by reads of weights and shared memory), dL/dx 0.15 ms (49 TFLOP/s),
dL/dw 0.27 ms (27 TFLOP/s), the pass between 0.13 ms (2.7 TB/s).
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const torch::Tensor& multiplier,
    double slope, int64_t output_padding, bool keep_winners);

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor> backward(
    const torch::Tensor& grad_output, const torch::Tensor& x, const torch::Tensor& weight,
    const torch::Tensor& multiplier, const torch::Tensor& winners, const torch::Tensor& places, double slope,
    int64_t output_padding, bool want_x, bool want_weight);
"""

CUDA_SOURCE = r"""
#include <tuple>

#include <kernels/convolutions.cuh>
#include <kernels/pointwise.cuh>

namespace {

using namespace host;
using namespace pointwise;
using tensor_cores::Volumes;

constexpr int kIn = 16, kOut = 32;  // channels for which the tensor cores' kernels are made

// The convolved volume of one (sample, channel) pair, and the pooled volume made from it.
struct Extents {
  int depth, height, width;
  int pooled_depth, pooled_height, pooled_width;

  __host__ __device__ int64_t volume() const { return int64_t(depth) * height * width; }
  __host__ __device__ int64_t pooled_volume() const { return int64_t(pooled_depth) * pooled_height * pooled_width; }

  // No window ends short of the border, so that every convolved value belongs to one.
  bool tiled_exactly() const {
    return depth == 2 * pooled_depth && height == 2 * pooled_height && width == 2 * pooled_width;
  }
};

// Where the convolved values of window `index` start: the row for depth bit r / 2 and height bit r % 2.
__device__ __forceinline__ int64_t window_row(int index, int r, const Extents& e) {
  const int column = index % e.pooled_width, row = index / e.pooled_width;
  const int d = row / e.pooled_height, h = row % e.pooled_height;
  return ((int64_t(2 * d) + r / 2) * e.height + 2 * h + r % 2) * e.width + 2 * column;
}

__device__ __forceinline__ float activated(float x, float scale, float slope) {
  return leaky(leaky(x, slope) * scale, slope);
}

// Takes the convolution's sums where they are made. The eight outputs of an input position are a window: its winner so
// far stays in registers. A thread has two neighbouring windows (i) in each of eight places (j, h) of its tile.
struct Pool {
  const float *bias, *multiplier;
  float *output, *winners;  // winners may be null
  uint8_t* places;
  Volumes volumes;
  float slope;
  float winner[4][2][2];
  uint8_t place[4][2][2];

  __device__ void take(int parity, int, int channel, int, int, int, const float (&sums)[4], int, int j, int h) {
    const float own = bias[channel], scale = multiplier[channel];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int i = p / 2;
      const float x = sums[p] + own, y = activated(x, scale, slope);
      const bool first = parity == 0 && p % 2 == 0;
      if (first || y > activated(winner[j][h][i], scale, slope) || isnan(y)) {
        winner[j][h][i] = x;
        place[j][h][i] = 2 * parity + p % 2;
      }
    }
  }

  __device__ void finish(int sample, int channel0, int z, int y, int x0) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int channel = channel0 + 8 * h, x = x0 + 8 * j;
        if (x >= volumes.width) continue;
        const float scale = multiplier[channel];
        const float2 best = {winner[j][h][0], winner[j][h][1]};
        const int64_t row = ((int64_t(sample) * kOut + channel) * volumes.depth + z) * volumes.height + y;
        const int64_t at = row * volumes.width + x;
        *reinterpret_cast<float2*>(output + at) =
            make_float2(activated(best.x, scale, slope), activated(best.y, scale, slope));
        if (winners == nullptr) continue;
        *reinterpret_cast<float2*>(winners + at) = best;
        *reinterpret_cast<uchar2*>(places + at) = make_uchar2(place[j][h][0], place[j][h][1]);
      }
    }
  }
};

// For a convolution made by cuDNN. blockIdx.x is the (sample, channel) pair; blockIdx.y shares out its windows.
__global__ void __launch_bounds__(kThreads) pooled_forward_kernel(
    const float* __restrict__ convolved, const float* __restrict__ multiplier, float* __restrict__ output,
    float* __restrict__ winners, uint8_t* __restrict__ places, Extents extents, int channels, float slope) {
  const int64_t plane = blockIdx.x, windows = extents.pooled_volume();
  const float scale = multiplier[plane % channels];
  convolved += plane * extents.volume();

  for (int64_t i = first_of_plane(); i < windows; i += stride_in_plane()) {
    float best = -INFINITY, winner = 0.0f;
    int place = 0;
#pragma unroll
    for (int p = 0; p < 8; ++p) {
      const float x = convolved[window_row(int(i), p / 2, extents) + p % 2], y = activated(x, scale, slope);
      if (p == 0 || y > best || isnan(y)) {
        best = y;
        winner = x;
        place = p;
      }
    }
    output[plane * windows + i] = best;
    if (winners == nullptr) continue;
    winners[plane * windows + i] = winner;
    places[plane * windows + i] = uint8_t(place);
  }
}

// The gradient of the convolved values, and a block's sums of grad_z * a and of that gradient. `even` rows of the
// convolved values start on two floats.
__global__ void __launch_bounds__(kThreads) pooled_backward_kernel(
    const float* __restrict__ grad_output, const float* __restrict__ winners, const uint8_t* __restrict__ places,
    const float* __restrict__ multiplier, float* __restrict__ grad_convolved, float2* __restrict__ partial_sums,
    Extents extents, int channels, float slope, bool even) {
  const int64_t plane = blockIdx.x, windows = extents.pooled_volume();
  const float scale = multiplier[plane % channels];
  grad_convolved += plane * extents.volume();

  float2 sums{};
  for (int64_t i = first_of_plane(); i < windows; i += stride_in_plane()) {
    const float x = winners[plane * windows + i], a = leaky(x, slope);
    const int place = places[plane * windows + i];
    const float grad_z = grad_output[plane * windows + i] * leaky_derivative(a * scale, slope);
    const float grad_winner = grad_z * scale * leaky_derivative(x, slope);
    sums.x += grad_z * a;
    sums.y += grad_winner;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float2 row = {place == 2 * r ? grad_winner : 0.0f, place == 2 * r + 1 ? grad_winner : 0.0f};
      float* const target = grad_convolved + window_row(int(i), r, extents);
      if (even) {
        *reinterpret_cast<float2*>(target) = row;
      } else {
        target[0] = row.x;
        target[1] = row.y;
      }
    }
  }
  sums = block_sum(sums);
  if (threadIdx.x == 0) partial_sums[plane * gridDim.y + blockIdx.y] = sums;
}

bool fits_tensor_cores(const torch::Tensor& x, const torch::Tensor& weight, int64_t output_padding) {
  return allows_tensor_float() && output_padding == 1 && weight.size(0) == kIn &&
         weight.size(1) == kOut && x.size(4) % 4 == 0 && x.numel() >= (int64_t(1) << 21) &&
         starts_on_float4(x);
}

Extents extents_of(const Volumes& v) {
  return {v.out_depth, v.out_height, v.out_width, v.out_depth / 2, v.out_height / 2, v.out_width / 2};
}

}  // namespace

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
    const torch::Tensor& x_, const torch::Tensor& weight_, const torch::Tensor& bias_, const torch::Tensor& multiplier_,
    double slope, int64_t output_padding, bool keep_winners) {
  TORCH_CHECK(x_.dim() == 5, "x must have 5 dimensions, has ", x_.dim());
  check(x_, "x", x_);
  check(weight_, "weight", x_);
  check(bias_, "bias", x_);
  check(multiplier_, "multiplier", x_);
  TORCH_CHECK(multiplier_.numel() == weight_.size(1), "multiplier must have one element per channel");
  const c10::cuda::CUDAGuard guard(x_.device());
  const auto x = x_.contiguous(), weight = weight_.contiguous(), bias = bias_.contiguous();
  const auto multiplier = multiplier_.contiguous();
  const Volumes v = tensor_cores::volumes_of(x, output_padding);
  const Extents extents = extents_of(v);
  TORCH_CHECK(extents.volume() < (int64_t(1) << 31), "volume is too large");
  TORCH_CHECK(extents.pooled_volume() > 0, "every extent must hold a window of two");

  const int64_t samples = x.size(0), channels = weight.size(1);
  auto output = torch::empty(
      {samples, channels, extents.pooled_depth, extents.pooled_height, extents.pooled_width}, x.options());
  const auto kept_shape = keep_winners ? output.sizes().vec() : std::vector<int64_t>{0};
  auto winners = torch::empty(kept_shape, x.options());
  auto places = torch::empty(kept_shape, x.options().dtype(torch::kUInt8));
  if (output.numel() == 0) return {output, winners, places};
  float* const winner_data = keep_winners ? winners.mutable_data_ptr<float>() : nullptr;
  uint8_t* const place_data = keep_winners ? places.mutable_data_ptr<uint8_t>() : nullptr;

  if (fits_tensor_cores(x, weight, output_padding)) {
    const Pool sink{bias.const_data_ptr<float>(), multiplier.const_data_ptr<float>(), output.mutable_data_ptr<float>(),
                    winner_data, place_data, v, float(slope)};
    tensor_cores::conv_transpose3d<kIn, kOut, 1>(x, weight, v, sink);
    return {output, winners, places};
  }

  const auto convolved = at::conv_transpose3d(x, weight, bias, {2, 2, 2}, {1, 1, 1},
                                              {output_padding, output_padding, output_padding}).contiguous();
  const dim3 grid = plane_grid(samples * channels, extents.pooled_volume());
  launch(pooled_forward_kernel, grid, kThreads, 0, convolved.const_data_ptr<float>(),
         multiplier.const_data_ptr<float>(), output.mutable_data_ptr<float>(), winner_data, place_data, extents,
         int(channels), float(slope));
  return {output, winners, places};
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor> backward(
    const torch::Tensor& grad_output_, const torch::Tensor& x_, const torch::Tensor& weight_,
    const torch::Tensor& multiplier_, const torch::Tensor& winners, const torch::Tensor& places, double slope,
    int64_t output_padding, bool want_x, bool want_weight) {
  check(grad_output_, "grad_output", winners);
  TORCH_CHECK(grad_output_.sizes() == winners.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(winners.device());
  const auto grad_output = grad_output_.contiguous(), x = x_.contiguous(), weight = weight_.contiguous();
  const auto multiplier = multiplier_.contiguous();
  const Volumes v = tensor_cores::volumes_of(x, output_padding);
  const Extents extents = extents_of(v);
  const int64_t samples = x.size(0), channels = weight.size(1);
  const std::vector<int64_t> shape{samples, channels, v.out_depth, v.out_height, v.out_width};
  auto grad_convolved = extents.tiled_exactly() ? torch::empty(shape, x.options()) : torch::zeros(shape, x.options());
  if (winners.numel() == 0) {
    return {torch::zeros_like(x), torch::zeros_like(weight), torch::zeros({channels}, weight.options()),
            torch::zeros_like(multiplier)};
  }

  const dim3 grid = plane_grid(samples * channels, extents.pooled_volume());
  auto partial_sums = torch::empty({samples, channels, int64_t(grid.y), 2}, x.options());
  launch(pooled_backward_kernel, grid, kThreads, 0, grad_output.const_data_ptr<float>(),
         winners.const_data_ptr<float>(), places.const_data_ptr<uint8_t>(), multiplier.const_data_ptr<float>(),
         grad_convolved.mutable_data_ptr<float>(), pairs(partial_sums), extents, int(channels), float(slope),
         v.out_width % 2 == 0);
  const auto sums = partial_sums.sum(at::IntArrayRef({0, 2}));
  const auto grad_multiplier = sums.select(1, 0).reshape(multiplier.sizes());
  const auto grad_bias = sums.select(1, 1).contiguous();

  torch::Tensor grad_x, grad_weight;
  if (!fits_tensor_cores(x, weight, output_padding)) {
    if (want_x || want_weight) {
      std::tie(grad_x, grad_weight, std::ignore) = at::convolution_backward(
          grad_convolved, x, weight, std::nullopt, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, true,
          {output_padding, output_padding, output_padding}, 1, {want_x, want_weight, false});
    }
    return {grad_x, grad_weight, grad_bias, grad_multiplier};
  }
  if (want_x) grad_x = tensor_cores::conv_transpose3d_input_gradient<kIn, kOut>(grad_convolved, x, weight, v);
  if (want_weight) {
    grad_weight = tensor_cores::conv_transpose3d_weight_gradient<kIn, kOut, 1, 176>(grad_convolved, x, v);
  }
  return {grad_x, grad_weight, grad_bias, grad_multiplier};
}
"""

kernels = load_inline(
    name="conv_transpose3d_leaky_relu_mul_leaky_relu_max",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class ConvLeakyScaleLeakyPool(torch.autograd.Function):
    """max_pool3d(leaky_relu(leaky_relu(conv_transpose3d(x)) * multiplier), 2)"""

    @staticmethod
    def forward(ctx, x, weight, bias, multiplier, slope, output_padding, keep_winners):
        output, winners, places = kernels.forward(x, weight, bias, multiplier, slope, output_padding, keep_winners)
        ctx.save_for_backward(x, weight, multiplier, winners, places)
        ctx.slope, ctx.output_padding = slope, output_padding
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        wanted = ctx.needs_input_grad[:4]
        gradients = kernels.backward(grad_output, *ctx.saved_tensors, ctx.slope, ctx.output_padding, *wanted[:2])
        kept = (gradient if want else None for gradient, want in zip(gradients, wanted, strict=True))
        return *kept, None, None, None


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.output_padding = output_padding
        self.negative_slope = 0.2

    def forward(self, x):
        convolution = self.conv_transpose
        return ConvLeakyScaleLeakyPool.apply(
            x,
            convolution.weight,
            convolution.bias,
            self.multiplier,
            self.negative_slope,
            self.output_padding,
            torch.is_grad_enabled(),
        )
