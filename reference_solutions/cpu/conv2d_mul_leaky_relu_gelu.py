"""The CPU twin: ATen's convolution, then one loop for x multiplier -> LeakyReLU(0.01) -> exact GELU.

The loop reads memory once where eager reads it three times, so what is left is arithmetic: erf and exp are written
out as polynomials without branches, which the compiler turns into vector code. erf is within 1e-7.

With z = c * m, a = leaky(z), y = gelu(a) and g for dL/dy,

    dL/dz = g * gelu'(a) * leaky'(z)        dL/dc = dL/dz * m        dL/dm = sum of dL/dz * c
    gelu'(a) = Phi(a) + a * phi(a)

Threads share out the (sample, channel) planes, and each plane has a partial sum of its own: the result does not depend
on the number of threads.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <cmath>
#include <cstdint>
#include <tuple>

namespace {

// A plane is summed in runs of this length: floats within a run, doubles across runs.
constexpr int64_t kRun = 4096;

constexpr float kSqrtHalf = 0.70710678118654752440f;
constexpr float kInverseSqrtTwoPi = 0.39894228040143267794f;

// e^x for x <= 0, as 2^n * e^r with |r| <= ln(2) / 2. Below -87 it would be denormal and stays at e^-87.
inline float exp_nonpositive(float x) {
  x = x < -87.0f ? -87.0f : x;
  const float n = std::rint(x * 1.44269504f);
  const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float e = 1.0f / 720.0f;
  e = e * r + 1.0f / 120.0f;
  e = e * r + 1.0f / 24.0f;
  e = e * r + 1.0f / 6.0f;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;  // std::bit_cast is C++20, and PyTorch before 2.13 compiles as C++17
  std::memcpy(&power, &bits, sizeof power);
  return e * power;
}

// Two minimax polynomials, both evaluated: x * P(x^2) near zero, 1 - exp(Q(|x|)) further out.
inline float erf(float x) {
  const float t = std::fabs(x);
  const float s = x * x;
  float q = -1.72853470e-5f * t + 3.83197126e-4f;
  q = q * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  q = q * t - 1.06777877e-1f;
  q = q * t - 6.34846687e-1f;
  q = q * t - 1.28717512e-1f;
  const float outer = std::copysign(1.0f - exp_nonpositive(q * t - t), x);
  float p = -5.96761703e-4f;
  p = p * s + 4.99119423e-3f;
  p = p * s - 2.67681349e-2f;
  p = p * s + 1.12819925e-1f;
  p = p * s - 3.76125336e-1f;
  p = p * s + 1.28379166e-1f;
  return t > 0.921875f ? outer : p * x + x;
}

inline float leaky(float x, float slope) { return x > 0.0f ? x : x * slope; }
inline float leaky_derivative(float x, float slope) { return x > 0.0f ? 1.0f : slope; }

inline float normal_cdf(float x) { return 0.5f * (1.0f + erf(x * kSqrtHalf)); }
inline float normal_pdf(float x) { return kInverseSqrtTwoPi * exp_nonpositive(-0.5f * x * x); }

inline float gelu(float x) { return x * normal_cdf(x); }
inline float gelu_derivative(float x) { return normal_cdf(x) + x * normal_pdf(x); }

void check(const torch::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu(), name, " must be on the CPU, is on ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

}  // namespace

torch::Tensor scaled_gelu_forward(const torch::Tensor& convolved_, const torch::Tensor& multiplier_, double slope_) {
  TORCH_CHECK(convolved_.dim() == 4, "convolved must have 4 dimensions, has ", convolved_.dim());
  check(convolved_, "convolved");
  check(multiplier_, "multiplier");
  TORCH_CHECK(multiplier_.numel() == convolved_.size(1), "multiplier must have one element per channel");
  const auto convolved = convolved_.contiguous();
  const auto multiplier = multiplier_.contiguous();
  auto output = torch::empty(convolved.sizes(), convolved.options());

  const float slope = slope_;
  const int64_t channels = convolved.size(1), plane_size = convolved.size(2) * convolved.size(3);
  const float* const scales = multiplier.const_data_ptr<float>();
  const float* const source = convolved.const_data_ptr<float>();
  float* const target = output.mutable_data_ptr<float>();

  at::parallel_for(0, convolved.size(0) * channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const float scale = scales[plane % channels];
      const float* const c = source + plane * plane_size;
      float* const y = target + plane * plane_size;
#pragma omp simd
      for (int64_t i = 0; i < plane_size; ++i) y[i] = gelu(leaky(c[i] * scale, slope));
    }
  });
  return output;
}

std::tuple<torch::Tensor, torch::Tensor> scaled_gelu_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& convolved_, const torch::Tensor& multiplier_,
    double slope_, bool want_grad_convolved, bool want_grad_multiplier) {
  check(grad_output_, "grad_output");
  TORCH_CHECK(grad_output_.sizes() == convolved_.sizes(), "grad_output must have the output's shape");
  const auto grad_output = grad_output_.contiguous();
  const auto convolved = convolved_.contiguous();
  const auto multiplier = multiplier_.contiguous();

  const float slope = slope_;
  const int64_t samples = convolved.size(0), channels = convolved.size(1);
  const int64_t plane_size = convolved.size(2) * convolved.size(3);
  torch::Tensor grad_convolved;
  if (want_grad_convolved) grad_convolved = torch::empty(convolved.sizes(), convolved.options());
  auto partial_sums = torch::empty({samples, channels}, convolved.options().dtype(torch::kFloat64));

  const float* const scales = multiplier.const_data_ptr<float>();
  const float* const source = convolved.const_data_ptr<float>();
  const float* const grad = grad_output.const_data_ptr<float>();
  float* const target = want_grad_convolved ? grad_convolved.mutable_data_ptr<float>() : nullptr;
  double* const sums = partial_sums.mutable_data_ptr<double>();

  at::parallel_for(0, samples * channels, 1, [&](int64_t begin, int64_t end) {
    float grad_z[kRun];
    for (int64_t plane = begin; plane < end; ++plane) {
      const float scale = scales[plane % channels];
      double sum = 0.0;
      for (int64_t start = 0; start < plane_size; start += kRun) {
        const int64_t length = std::min(kRun, plane_size - start);
        const float* const c = source + plane * plane_size + start;
        const float* const g = grad + plane * plane_size + start;
        float run_sum = 0.0f;
#pragma omp simd reduction(+ : run_sum)
        for (int64_t i = 0; i < length; ++i) {
          const float z = c[i] * scale;
          grad_z[i] = g[i] * gelu_derivative(leaky(z, slope)) * leaky_derivative(z, slope);
          run_sum += grad_z[i] * c[i];
        }
        sum += run_sum;
        if (target == nullptr) continue;
        float* const grad_c = target + plane * plane_size + start;
#pragma omp simd
        for (int64_t i = 0; i < length; ++i) grad_c[i] = grad_z[i] * scale;
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
    name="conv2d_mul_leaky_relu_gelu_cpu",
    cpp_sources=CPP_SOURCE,
    functions=["scaled_gelu_forward", "scaled_gelu_backward"],
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"],
)


class ScaleLeakyGelu(torch.autograd.Function):
    """gelu(leaky_relu(convolved * multiplier))"""

    @staticmethod
    def forward(ctx, convolved, multiplier, slope):
        ctx.save_for_backward(convolved, multiplier)
        ctx.slope = slope
        return kernels.scaled_gelu_forward(convolved, multiplier, slope)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        convolved, multiplier = ctx.saved_tensors
        grad_convolved, grad_multiplier = kernels.scaled_gelu_backward(
            grad_output, convolved, multiplier, ctx.slope, *ctx.needs_input_grad[:2]
        )
        return grad_convolved, grad_multiplier, None


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, multiplier_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.negative_slope = 0.01

    def forward(self, x):
        return ScaleLeakyGelu.apply(self.conv(x), self.multiplier, self.negative_slope)
