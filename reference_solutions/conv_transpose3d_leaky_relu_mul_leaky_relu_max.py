"""cuDNN's transposed convolution, then one kernel for LeakyReLU -> x multiplier -> LeakyReLU -> MaxPool3d(2).

Fused: everything behind the convolution. A thread takes two neighbouring 2x2x2 windows, that is four float4 rows of the
convolved tensor, and keeps of each window the largest output, the convolved value it came from (the winner) and the
winner's place in the window, a number from 0 to 7.

Bytes at full size, with C = 268 MB for the convolved tensor and P = C / 8 for the pooled one:

               eager                                                here
    forward    7 C + 3 P  (three pointwise passes, pooling)         C + 2.25 P
    backward  13 C + 3 P  (fill, scatter, four passes, a sum)       C + 2.25 P
    kept       4 C + 2 P                                            1.25 P

The convolved tensor itself is not needed again, so it is freed after the forward pass.

Why the backward is right: pooling hands the gradient g of a window to the winner alone, so the other seven gradients
are zero whatever their values were. For the winner x, with a = leaky(x), z = a * m, y = leaky(z):

    dL/dx = g * leaky'(z) * m * leaky'(x)        dL/dm = sum of g * leaky'(z) * a

both functions of x, m and g. leaky'(0) is the slope, the first of equal values wins, and a NaN wins over numbers: all
as in PyTorch. Each block adds up its share of dL/dm and writes one partial sum; a fixed-order sum over those makes the
gradient the same in every run.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> pooled_forward(
    const torch::Tensor& convolved, const torch::Tensor& multiplier, double slope, bool keep_winners);

std::tuple<torch::Tensor, torch::Tensor> pooled_backward(
    const torch::Tensor& grad_output, const torch::Tensor& winners, const torch::Tensor& places,
    const torch::Tensor& multiplier, double slope, int64_t depth, int64_t height, int64_t width,
    bool want_grad_convolved, bool want_grad_multiplier);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <tuple>

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kItemsPerThread = 4;

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

// WINDOWS neighbouring windows in a row: 2 * WINDOWS convolved values in each of four rows. A single window may stand
// in rows of odd length, which start on no more than a float.
template <int WINDOWS>
struct alignas(WINDOWS == 1 ? sizeof(float) : 2 * WINDOWS * sizeof(float)) Row {
  float value[2 * WINDOWS];
};

template <typename T, int WINDOWS>
struct alignas(WINDOWS * sizeof(T)) Pooled {
  T value[WINDOWS];
};

// Where a group of windows starts inside its volume.
struct Position {
  int64_t pooled;
  int64_t convolved;
};

template <int WINDOWS>
__device__ __forceinline__ Position locate(int group, const Extents& extents) {
  const int groups_per_row = extents.pooled_width / WINDOWS;
  const int row = group / groups_per_row;
  const int column = (group - row * groups_per_row) * WINDOWS;
  const int d = row / extents.pooled_height;
  const int h = row - d * extents.pooled_height;
  return {int64_t(row) * extents.pooled_width + column,
          (int64_t(2 * d) * extents.height + 2 * h) * extents.width + 2 * column};
}

// Row r of a window: bit 1 of r is the depth, bit 0 the height.
__device__ __forceinline__ int64_t row_offset(int r, const Extents& extents) {
  return (int64_t(r >> 1) * extents.height + (r & 1)) * extents.width;
}

__device__ __forceinline__ float leaky(float x, float slope) { return x > 0.0f ? x : x * slope; }
__device__ __forceinline__ float leaky_derivative(float x, float slope) { return x > 0.0f ? 1.0f : slope; }

// The sum over the block, in thread 0.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float warp_sums[kThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0.0f;
  value = threadIdx.x < kThreads / kWarp ? warp_sums[threadIdx.x] : 0.0f;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

// blockIdx.x is the (sample, channel) pair; blockIdx.y shares out its windows.
template <int WINDOWS>
__global__ void __launch_bounds__(kThreads) pooled_forward_kernel(
    const float* __restrict__ convolved, const float* __restrict__ multiplier, float* __restrict__ output,
    float* __restrict__ winners, uint8_t* __restrict__ places, Extents extents, int channels, float slope) {
  const int64_t plane = blockIdx.x;
  const float scale = multiplier[plane % channels];
  convolved += plane * extents.volume();
  output += plane * extents.pooled_volume();
  if (winners != nullptr) {
    winners += plane * extents.pooled_volume();
    places += plane * extents.pooled_volume();
  }

  const int groups = extents.pooled_volume() / WINDOWS;
  for (int group = blockIdx.y * kThreads + threadIdx.x; group < groups; group += gridDim.y * kThreads) {
    const Position at = locate<WINDOWS>(group, extents);
    Row<WINDOWS> rows[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      rows[r] = *reinterpret_cast<const Row<WINDOWS>*>(convolved + at.convolved + row_offset(r, extents));
    }

    Pooled<float, WINDOWS> best, winner;
    Pooled<uint8_t, WINDOWS> place;
#pragma unroll
    for (int w = 0; w < WINDOWS; ++w) {
      best.value[w] = -INFINITY;
      winner.value[w] = rows[0].value[2 * w];
      place.value[w] = 0;
#pragma unroll
      for (int p = 0; p < 8; ++p) {
        const float x = rows[p >> 1].value[2 * w + (p & 1)];
        const float y = leaky(leaky(x, slope) * scale, slope);
        if (y > best.value[w] || isnan(y)) {
          best.value[w] = y;
          winner.value[w] = x;
          place.value[w] = p;
        }
      }
    }

    *reinterpret_cast<Pooled<float, WINDOWS>*>(output + at.pooled) = best;
    if (winners != nullptr) {
      *reinterpret_cast<Pooled<float, WINDOWS>*>(winners + at.pooled) = winner;
      *reinterpret_cast<Pooled<uint8_t, WINDOWS>*>(places + at.pooled) = place;
    }
  }
}

// Either gradient may be unwanted; its pointer is null then.
template <int WINDOWS>
__global__ void __launch_bounds__(kThreads) pooled_backward_kernel(
    const float* __restrict__ grad_output, const float* __restrict__ winners, const uint8_t* __restrict__ places,
    const float* __restrict__ multiplier, float* __restrict__ grad_convolved, float* __restrict__ partial_sums,
    Extents extents, int channels, float slope) {
  const int64_t plane = blockIdx.x;
  const float scale = multiplier[plane % channels];
  grad_output += plane * extents.pooled_volume();
  winners += plane * extents.pooled_volume();
  places += plane * extents.pooled_volume();
  if (grad_convolved != nullptr) grad_convolved += plane * extents.volume();

  float sum = 0.0f;
  const int groups = extents.pooled_volume() / WINDOWS;
  for (int group = blockIdx.y * kThreads + threadIdx.x; group < groups; group += gridDim.y * kThreads) {
    const Position at = locate<WINDOWS>(group, extents);
    const auto grad = *reinterpret_cast<const Pooled<float, WINDOWS>*>(grad_output + at.pooled);
    const auto winner = *reinterpret_cast<const Pooled<float, WINDOWS>*>(winners + at.pooled);
    const auto place = *reinterpret_cast<const Pooled<uint8_t, WINDOWS>*>(places + at.pooled);

    float grad_winner[WINDOWS];
#pragma unroll
    for (int w = 0; w < WINDOWS; ++w) {
      const float x = winner.value[w];
      const float a = leaky(x, slope);
      const float grad_z = grad.value[w] * leaky_derivative(a * scale, slope);
      grad_winner[w] = grad_z * scale * leaky_derivative(x, slope);
      sum += grad_z * a;
    }
    if (grad_convolved == nullptr) continue;

#pragma unroll
    for (int r = 0; r < 4; ++r) {
      Row<WINDOWS> row;
#pragma unroll
      for (int i = 0; i < 2 * WINDOWS; ++i) {
        row.value[i] = place.value[i / 2] == 2 * r + i % 2 ? grad_winner[i / 2] : 0.0f;
      }
      *reinterpret_cast<Row<WINDOWS>*>(grad_convolved + at.convolved + row_offset(r, extents)) = row;
    }
  }

  if (partial_sums == nullptr) return;
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial_sums[plane * gridDim.y + blockIdx.y] = sum;
}

void check(const torch::Tensor& tensor, const char* name, const torch::Tensor& like) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == like.device(), name, " must be on ", like.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

dim3 make_grid(int64_t planes, int64_t groups) {
  const int64_t share = kThreads * kItemsPerThread;
  const int64_t blocks = std::clamp<int64_t>((groups + share - 1) / share, 1, 65535);
  return dim3(static_cast<unsigned>(planes), static_cast<unsigned>(blocks));
}

// Two windows at once need every row to start on a multiple of two windows; `caller_data` may start anywhere.
bool fits_pairs(const Extents& extents, const torch::Tensor& caller_data) {
  return extents.width % 4 == 0 && reinterpret_cast<uintptr_t>(caller_data.const_data_ptr()) % 16 == 0;
}

}  // namespace

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> pooled_forward(
    const torch::Tensor& convolved_, const torch::Tensor& multiplier_, double slope, bool keep_winners) {
  TORCH_CHECK(convolved_.dim() == 5, "convolved must have 5 dimensions, has ", convolved_.dim());
  check(convolved_, "convolved", convolved_);
  check(multiplier_, "multiplier", convolved_);
  TORCH_CHECK(multiplier_.numel() == convolved_.size(1), "multiplier must have one element per channel");
  const c10::cuda::CUDAGuard guard(convolved_.device());
  const auto convolved = convolved_.contiguous();
  const auto multiplier = multiplier_.contiguous();

  const int64_t samples = convolved.size(0), channels = convolved.size(1);
  TORCH_CHECK(convolved.size(2) * convolved.size(3) * convolved.size(4) < (int64_t(1) << 31), "volume is too large");
  const Extents extents{int(convolved.size(2)),     int(convolved.size(3)),     int(convolved.size(4)),
                        int(convolved.size(2) / 2), int(convolved.size(3) / 2), int(convolved.size(4) / 2)};
  TORCH_CHECK(extents.pooled_volume() > 0, "every extent must hold a window of two");

  auto output = torch::empty(
      {samples, channels, extents.pooled_depth, extents.pooled_height, extents.pooled_width}, convolved.options());
  const auto kept_shape = keep_winners ? output.sizes().vec() : std::vector<int64_t>{0};
  auto winners = torch::empty(kept_shape, convolved.options());
  auto places = torch::empty(kept_shape, convolved.options().dtype(torch::kUInt8));
  if (output.numel() == 0) return {output, winners, places};

  const bool paired = fits_pairs(extents, convolved);
  const auto kernel = paired ? pooled_forward_kernel<2> : pooled_forward_kernel<1>;
  const dim3 grid = make_grid(samples * channels, extents.pooled_volume() / (paired ? 2 : 1));
  kernel<<<grid, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      convolved.const_data_ptr<float>(), multiplier.const_data_ptr<float>(), output.mutable_data_ptr<float>(),
      keep_winners ? winners.mutable_data_ptr<float>() : nullptr,
      keep_winners ? places.mutable_data_ptr<uint8_t>() : nullptr, extents, int(channels), float(slope));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {output, winners, places};
}

std::tuple<torch::Tensor, torch::Tensor> pooled_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& winners, const torch::Tensor& places,
    const torch::Tensor& multiplier_, double slope, int64_t depth, int64_t height, int64_t width,
    bool want_grad_convolved, bool want_grad_multiplier) {
  check(grad_output_, "grad_output", winners);
  TORCH_CHECK(grad_output_.sizes() == winners.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(winners.device());
  const auto grad_output = grad_output_.contiguous();
  const auto multiplier = multiplier_.contiguous();

  const int64_t samples = winners.size(0), channels = winners.size(1);
  const Extents extents{int(depth),           int(height),          int(width),
                        int(winners.size(2)), int(winners.size(3)), int(winners.size(4))};

  torch::Tensor grad_convolved, partial_sums;
  if (want_grad_convolved) {
    const std::vector<int64_t> shape{samples, channels, depth, height, width};
    grad_convolved = extents.tiled_exactly() ? torch::empty(shape, winners.options())
                                             : torch::zeros(shape, winners.options());
  }
  if (winners.numel() == 0) return {grad_convolved, torch::zeros_like(multiplier)};

  const bool paired = fits_pairs(extents, grad_output);
  const auto kernel = paired ? pooled_backward_kernel<2> : pooled_backward_kernel<1>;
  const dim3 grid = make_grid(samples * channels, extents.pooled_volume() / (paired ? 2 : 1));
  if (want_grad_multiplier) partial_sums = torch::empty({samples, channels, int64_t(grid.y)}, winners.options());
  kernel<<<grid, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      grad_output.const_data_ptr<float>(), winners.const_data_ptr<float>(), places.const_data_ptr<uint8_t>(),
      multiplier.const_data_ptr<float>(), want_grad_convolved ? grad_convolved.mutable_data_ptr<float>() : nullptr,
      want_grad_multiplier ? partial_sums.mutable_data_ptr<float>() : nullptr, extents, int(channels), float(slope));
  C10_CUDA_KERNEL_LAUNCH_CHECK();

  torch::Tensor grad_multiplier;
  if (want_grad_multiplier) grad_multiplier = partial_sums.sum(at::IntArrayRef({0, 2})).view(multiplier.sizes());
  return {grad_convolved, grad_multiplier};
}
"""

kernels = load_inline(
    name="conv_transpose3d_leaky_relu_mul_leaky_relu_max",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["pooled_forward", "pooled_backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class LeakyScaleLeakyPool(torch.autograd.Function):
    """max_pool3d(leaky_relu(leaky_relu(convolved) * multiplier), 2)"""

    @staticmethod
    def forward(ctx, convolved, multiplier, slope, keep_winners):
        output, winners, places = kernels.pooled_forward(convolved, multiplier, slope, keep_winners)
        ctx.save_for_backward(winners, places, multiplier)
        ctx.slope = slope
        ctx.convolved_extents = convolved.shape[2:]
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        winners, places, multiplier = ctx.saved_tensors
        grad_convolved, grad_multiplier = kernels.pooled_backward(
            grad_output, winners, places, multiplier, ctx.slope, *ctx.convolved_extents, *ctx.needs_input_grad[:2]
        )
        return grad_convolved, grad_multiplier, None, None


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.negative_slope = 0.2

    def forward(self, x):
        convolved = self.conv_transpose(x)
        return LeakyScaleLeakyPool.apply(convolved, self.multiplier, self.negative_slope, torch.is_grad_enabled())
