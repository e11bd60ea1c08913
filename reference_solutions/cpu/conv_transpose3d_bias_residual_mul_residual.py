"""The CPU twin: ATen's transposed convolution, then one loop for + bias -> + o -> * o -> + o, o = detach(convolved).

o is a constant to autograd, whatever it was copied from. So with y = ((c + b) + o) * o + o,

    dL/dc = g * o        dL/db = sum of g * o        where o = c

and what is summed for dL/db is exactly what is written for dL/dc. Threads share out the (sample, channel) volumes, and
each volume has a partial sum of its own: the result does not depend on the number of threads.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

#include <algorithm>
#include <tuple>

namespace {

// A volume is summed in runs of this length: floats within a run, doubles across runs.
constexpr int64_t kRun = 4096;

void check(const torch::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu(), name, " must be on the CPU, is on ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

}  // namespace

torch::Tensor residual_forward(const torch::Tensor& convolved_, const torch::Tensor& bias_) {
  TORCH_CHECK(convolved_.dim() == 5, "convolved must have 5 dimensions, has ", convolved_.dim());
  check(convolved_, "convolved");
  check(bias_, "bias");
  TORCH_CHECK(bias_.numel() == convolved_.size(1), "bias must have one element per channel");
  const auto convolved = convolved_.contiguous();
  const auto bias = bias_.contiguous();
  auto output = torch::empty(convolved.sizes(), convolved.options());

  const int64_t channels = convolved.size(1);
  const int64_t volume = convolved.size(2) * convolved.size(3) * convolved.size(4);
  const float* const biases = bias.const_data_ptr<float>();
  const float* const source = convolved.const_data_ptr<float>();
  float* const target = output.mutable_data_ptr<float>();

  at::parallel_for(0, convolved.size(0) * channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const float b = biases[plane % channels];
      const float* const o = source + plane * volume;
      float* const y = target + plane * volume;
#pragma omp simd
      for (int64_t i = 0; i < volume; ++i) y[i] = ((o[i] + b) + o[i]) * o[i] + o[i];
    }
  });
  return output;
}

std::tuple<torch::Tensor, torch::Tensor> residual_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& convolved_, const torch::Tensor& bias,
    bool want_grad_convolved, bool want_grad_bias) {
  check(grad_output_, "grad_output");
  TORCH_CHECK(grad_output_.sizes() == convolved_.sizes(), "grad_output must have the output's shape");
  const auto grad_output = grad_output_.contiguous();
  const auto convolved = convolved_.contiguous();

  const int64_t samples = convolved.size(0), channels = convolved.size(1);
  const int64_t volume = convolved.size(2) * convolved.size(3) * convolved.size(4);
  torch::Tensor grad_convolved;
  if (want_grad_convolved) grad_convolved = torch::empty(convolved.sizes(), convolved.options());
  auto partial_sums = torch::empty({samples, channels}, convolved.options().dtype(torch::kFloat64));

  const float* const detached = convolved.const_data_ptr<float>();
  const float* const grad = grad_output.const_data_ptr<float>();
  float* const target = want_grad_convolved ? grad_convolved.mutable_data_ptr<float>() : nullptr;
  double* const sums = partial_sums.mutable_data_ptr<double>();

  at::parallel_for(0, samples * channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      double sum = 0.0;
      for (int64_t start = plane * volume; start < (plane + 1) * volume; start += kRun) {
        const int64_t stop = std::min(start + kRun, (plane + 1) * volume);
        float run_sum = 0.0f;
        if (target != nullptr) {
#pragma omp simd reduction(+ : run_sum)
          for (int64_t i = start; i < stop; ++i) {
            target[i] = grad[i] * detached[i];
            run_sum += target[i];
          }
        } else {
#pragma omp simd reduction(+ : run_sum)
          for (int64_t i = start; i < stop; ++i) run_sum += grad[i] * detached[i];
        }
        sum += run_sum;
      }
      sums[plane] = sum;
    }
  });

  torch::Tensor grad_bias;
  if (want_grad_bias) grad_bias = partial_sums.sum(0).to(torch::kFloat32).view(bias.sizes());
  return {grad_convolved, grad_bias};
}
"""

kernels = load_inline(
    name="conv_transpose3d_bias_residual_mul_residual_cpu",
    cpp_sources=CPP_SOURCE,
    functions=["residual_forward", "residual_backward"],
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
)


class BiasResidualMulResidual(torch.autograd.Function):
    """((convolved + bias) + o) * o + o, where o is the detached convolved tensor"""

    @staticmethod
    def forward(ctx, convolved, bias):
        ctx.save_for_backward(convolved, bias)
        return kernels.residual_forward(convolved, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        convolved, bias = ctx.saved_tensors
        return kernels.residual_backward(grad_output, convolved, bias, *ctx.needs_input_grad)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        return BiasResidualMulResidual.apply(self.conv_transpose(x), self.bias)
