"""The CPU twin: ATen's transposed convolution, then LeakyReLU -> x multiplier -> LeakyReLU -> MaxPool3d(2) in one loop.

Of every 2x2x2 window the loop keeps the largest output, the convolved value it came from (the winner) and the winner's
place in the window, a number from 0 to 7. The backward needs nothing else: pooling hands the gradient g of a window to
the winner x alone, and with a = leaky(x), z = a * m,

    dL/dx = g * leaky'(z) * m * leaky'(x)        dL/dm = sum of g * leaky'(z) * a

Threads share out the (sample, channel) volumes, and each volume has a partial sum of its own: the result does not
depend on the number of threads.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

#include <cmath>
#include <tuple>
#include <vector>

namespace {

struct Extents {
  int64_t depth, height, width;
  int64_t pooled_depth, pooled_height, pooled_width;

  int64_t volume() const { return depth * height * width; }
  int64_t pooled_volume() const { return pooled_depth * pooled_height * pooled_width; }

  // No window ends short of the border, so that every convolved value belongs to one.
  bool tiled_exactly() const {
    return depth == 2 * pooled_depth && height == 2 * pooled_height && width == 2 * pooled_width;
  }

  // Where row r of the windows (d, h, *) starts: bit 1 of r is the depth, bit 0 the height.
  int64_t row(int64_t d, int64_t h, int r) const { return ((2 * d + (r >> 1)) * height + 2 * h + (r & 1)) * width; }
};

inline float leaky(float x, float slope) { return x > 0.0f ? x : x * slope; }
inline float leaky_derivative(float x, float slope) { return x > 0.0f ? 1.0f : slope; }

// One row of windows. The places are kept as int32 so that all lanes are equally wide.
void pool_row(const float* convolved, const Extents& extents, int64_t d, int64_t h, float scale, float slope,
              float* best, float* winner, int32_t* place) {
  for (int64_t w = 0; w < extents.pooled_width; ++w) {
    best[w] = -INFINITY;
    winner[w] = convolved[extents.row(d, h, 0) + 2 * w];
    place[w] = 0;
  }
  for (int p = 0; p < 8; ++p) {
    const float* row = convolved + extents.row(d, h, p >> 1) + (p & 1);
#pragma omp simd
    for (int64_t w = 0; w < extents.pooled_width; ++w) {
      const float x = row[2 * w];
      const float y = leaky(leaky(x, slope) * scale, slope);
      const bool wins = (y > best[w]) | (y != y);
      best[w] = wins ? y : best[w];
      winner[w] = wins ? x : winner[w];
      place[w] = wins ? p : place[w];
    }
  }
}

void check(const torch::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu(), name, " must be on the CPU, is on ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

}  // namespace

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> pooled_forward(
    const torch::Tensor& convolved_, const torch::Tensor& multiplier_, double slope_) {
  TORCH_CHECK(convolved_.dim() == 5, "convolved must have 5 dimensions, has ", convolved_.dim());
  check(convolved_, "convolved");
  check(multiplier_, "multiplier");
  TORCH_CHECK(multiplier_.numel() == convolved_.size(1), "multiplier must have one element per channel");
  const auto convolved = convolved_.contiguous();
  const auto multiplier = multiplier_.contiguous();

  const int64_t samples = convolved.size(0), channels = convolved.size(1);
  const Extents extents{convolved.size(2),     convolved.size(3),     convolved.size(4),
                        convolved.size(2) / 2, convolved.size(3) / 2, convolved.size(4) / 2};
  TORCH_CHECK(extents.pooled_volume() > 0, "every extent must hold a window of two");

  auto output = torch::empty(
      {samples, channels, extents.pooled_depth, extents.pooled_height, extents.pooled_width}, convolved.options());
  auto winners = torch::empty_like(output);
  auto places = torch::empty(output.sizes(), output.options().dtype(torch::kUInt8));

  const float slope = slope_;
  const float* const source = convolved.const_data_ptr<float>();
  const float* const scales = multiplier.const_data_ptr<float>();
  float* const best = output.mutable_data_ptr<float>();
  float* const winner = winners.mutable_data_ptr<float>();
  uint8_t* const place = places.mutable_data_ptr<uint8_t>();

  at::parallel_for(0, samples * channels, 1, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> place_row(extents.pooled_width);
    for (int64_t plane = begin; plane < end; ++plane) {
      const float* const volume = source + plane * extents.volume();
      int64_t at = plane * extents.pooled_volume();
      for (int64_t d = 0; d < extents.pooled_depth; ++d) {
        for (int64_t h = 0; h < extents.pooled_height; ++h, at += extents.pooled_width) {
          pool_row(volume, extents, d, h, scales[plane % channels], slope, best + at, winner + at, place_row.data());
          for (int64_t w = 0; w < extents.pooled_width; ++w) place[at + w] = place_row[w];
        }
      }
    }
  });
  return {output, winners, places};
}

std::tuple<torch::Tensor, torch::Tensor> pooled_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& winners, const torch::Tensor& places,
    const torch::Tensor& multiplier_, double slope_, int64_t depth, int64_t height, int64_t width,
    bool want_grad_convolved, bool want_grad_multiplier) {
  check(grad_output_, "grad_output");
  TORCH_CHECK(grad_output_.sizes() == winners.sizes(), "grad_output must have the output's shape");
  const auto grad_output = grad_output_.contiguous();
  const auto multiplier = multiplier_.contiguous();

  const int64_t samples = winners.size(0), channels = winners.size(1);
  const Extents extents{depth, height, width, winners.size(2), winners.size(3), winners.size(4)};

  torch::Tensor grad_convolved;
  if (want_grad_convolved) {
    const std::vector<int64_t> shape{samples, channels, depth, height, width};
    grad_convolved = extents.tiled_exactly() ? torch::empty(shape, winners.options())
                                             : torch::zeros(shape, winners.options());
  }
  auto partial_sums = torch::empty({samples, channels}, winners.options().dtype(torch::kFloat64));

  const float slope = slope_;
  const float* const grad = grad_output.const_data_ptr<float>();
  const float* const winner = winners.const_data_ptr<float>();
  const uint8_t* const place = places.const_data_ptr<uint8_t>();
  const float* const scales = multiplier.const_data_ptr<float>();
  float* const target = want_grad_convolved ? grad_convolved.mutable_data_ptr<float>() : nullptr;
  double* const sums = partial_sums.mutable_data_ptr<double>();

  at::parallel_for(0, samples * channels, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> grad_row(extents.pooled_width);
    std::vector<int32_t> place_row(extents.pooled_width);
    for (int64_t plane = begin; plane < end; ++plane) {
      const float scale = scales[plane % channels];
      double sum = 0.0;
      int64_t at = plane * extents.pooled_volume();
      for (int64_t d = 0; d < extents.pooled_depth; ++d) {
        for (int64_t h = 0; h < extents.pooled_height; ++h, at += extents.pooled_width) {
          float row_sum = 0.0f;
#pragma omp simd reduction(+ : row_sum)
          for (int64_t w = 0; w < extents.pooled_width; ++w) {
            const float x = winner[at + w];
            const float a = leaky(x, slope);
            const float grad_z = grad[at + w] * leaky_derivative(a * scale, slope);
            grad_row[w] = grad_z * scale * leaky_derivative(x, slope);
            place_row[w] = place[at + w];
            row_sum += grad_z * a;
          }
          sum += row_sum;
          if (target == nullptr) continue;
          for (int r = 0; r < 4; ++r) {
            float* const row = target + plane * extents.volume() + extents.row(d, h, r);
#pragma omp simd
            for (int64_t w = 0; w < extents.pooled_width; ++w) {
              row[2 * w] = place_row[w] == 2 * r ? grad_row[w] : 0.0f;
              row[2 * w + 1] = place_row[w] == 2 * r + 1 ? grad_row[w] : 0.0f;
            }
          }
        }
      }
      sums[plane] = sum;
    }
  });

  torch::Tensor grad_multiplier;
  if (want_grad_multiplier) grad_multiplier = partial_sums.sum(0).to(torch::kFloat32).view(multiplier.sizes());
  return {grad_convolved, grad_multiplier};
}
"""

kernels = load_inline(
    name="conv_transpose3d_leaky_relu_mul_leaky_relu_max_cpu",
    cpp_sources=CPP_SOURCE,
    functions=["pooled_forward", "pooled_backward"],
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"],
)


class LeakyScaleLeakyPool(torch.autograd.Function):
    """max_pool3d(leaky_relu(leaky_relu(convolved) * multiplier), 2)"""

    @staticmethod
    def forward(ctx, convolved, multiplier, slope):
        output, winners, places = kernels.pooled_forward(convolved, multiplier, slope)
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
        return grad_convolved, grad_multiplier, None


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.negative_slope = 0.2

    def forward(self, x):
        return LeakyScaleLeakyPool.apply(self.conv_transpose(x), self.multiplier, self.negative_slope)
