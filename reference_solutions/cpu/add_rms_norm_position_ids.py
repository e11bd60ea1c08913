"""The CPU twin: residual add -> RMSNorm in one loop over rows, and position ids in another.

A row of h = x + residual is written once and stays in the cache until it is normalized. With r = 1 / rms(h), w for
weight, and gn, gh for the gradients that arrive at normalized and at new_residual,

    dL/dh = gh + r * (gn * w - h * r^2 * mean(gn * w * h))        dL/dw = sum over rows of gn * h * r

and dL/dx = dL/dresidual = dL/dh. Rows are cut into a fixed number of shares with one partial dL/dw each: the result
does not depend on the number of threads.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

namespace {

constexpr int64_t kShares = 64;

// Long rows are summed in runs: floats within a run, doubles across runs.
constexpr int64_t kRun = 1024;

void check(const torch::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu(), name, " must be on the CPU, is on ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

}  // namespace

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> add_rms_norm_forward(
    const torch::Tensor& x_, const torch::Tensor& residual_, const torch::Tensor& weight_, double eps) {
  check(x_, "x");
  check(residual_, "residual");
  check(weight_, "weight");
  TORCH_CHECK(x_.sizes() == residual_.sizes(), "x and residual must have the same shape");
  TORCH_CHECK(weight_.dim() == 1 && weight_.size(0) == x_.size(-1), "weight must have one element per column");
  const auto x = x_.contiguous(), residual = residual_.contiguous(), weight = weight_.contiguous();
  const int64_t columns = weight.size(0), rows = x.numel() / std::max<int64_t>(columns, 1);
  auto normalized = torch::empty(x.sizes(), x.options());
  auto new_residual = torch::empty(x.sizes(), x.options());
  auto inverse_rms = torch::empty({rows}, x.options());

  const float* const left = x.const_data_ptr<float>();
  const float* const right = residual.const_data_ptr<float>();
  const float* const w = weight.const_data_ptr<float>();
  float* const sums = new_residual.mutable_data_ptr<float>();
  float* const targets = normalized.mutable_data_ptr<float>();
  float* const inverses = inverse_rms.mutable_data_ptr<float>();

  at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const a = left + row * columns;
      const float* const b = right + row * columns;
      float* const h = sums + row * columns;
      double square_sum = 0.0;
      for (int64_t start = 0; start < columns; start += kRun) {
        const int64_t stop = std::min(start + kRun, columns);
        float run_sum = 0.0f;
#pragma omp simd reduction(+ : run_sum)
        for (int64_t i = start; i < stop; ++i) {
          h[i] = a[i] + b[i];
          run_sum += h[i] * h[i];
        }
        square_sum += run_sum;
      }
      const float inverse = 1.0 / std::sqrt(square_sum / columns + eps);
      inverses[row] = inverse;
      float* const n = targets + row * columns;
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) n[i] = h[i] * inverse * w[i];
    }
  });
  return {normalized, new_residual, inverse_rms};
}

std::tuple<torch::Tensor, torch::Tensor> add_rms_norm_backward(
    const torch::Tensor& grad_normalized_, const std::optional<torch::Tensor>& grad_new_residual_,
    const torch::Tensor& new_residual, const torch::Tensor& weight_, const torch::Tensor& inverse_rms,
    bool want_grad_sum, bool want_grad_weight) {
  check(grad_normalized_, "grad_normalized");
  TORCH_CHECK(grad_normalized_.sizes() == new_residual.sizes(), "grad_normalized must have the output's shape");
  const auto grad_normalized = grad_normalized_.contiguous();
  torch::Tensor grad_new_residual;
  if (grad_new_residual_.has_value()) {
    check(*grad_new_residual_, "grad_new_residual");
    TORCH_CHECK(grad_new_residual_->sizes() == new_residual.sizes(), "grad_new_residual must have the output's shape");
    grad_new_residual = grad_new_residual_->contiguous();
  }
  const auto weight = weight_.contiguous();
  const int64_t columns = weight.size(0), rows = inverse_rms.size(0);

  torch::Tensor grad_sum, partial_sums;
  if (want_grad_sum) grad_sum = torch::empty(new_residual.sizes(), new_residual.options());
  if (want_grad_weight) partial_sums = torch::zeros({kShares, columns}, new_residual.options());

  const float* const grads_n = grad_normalized.const_data_ptr<float>();
  const float* const grads_h = grad_new_residual.defined() ? grad_new_residual.const_data_ptr<float>() : nullptr;
  const float* const sums = new_residual.const_data_ptr<float>();
  const float* const inverses = inverse_rms.const_data_ptr<float>();
  const float* const w = weight.const_data_ptr<float>();
  float* const targets = want_grad_sum ? grad_sum.mutable_data_ptr<float>() : nullptr;
  float* const partials = want_grad_weight ? partial_sums.mutable_data_ptr<float>() : nullptr;

  at::parallel_for(0, kShares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      for (int64_t row = share * rows / kShares; row < (share + 1) * rows / kShares; ++row) {
        const float* const gn = grads_n + row * columns;
        const float* const h = sums + row * columns;
        const float inverse = inverses[row];
        if (partials != nullptr) {
          float* const gw = partials + share * columns;
#pragma omp simd
          for (int64_t i = 0; i < columns; ++i) gw[i] += gn[i] * h[i] * inverse;
        }
        if (targets == nullptr) continue;

        double dot = 0.0;
        for (int64_t start = 0; start < columns; start += kRun) {
          const int64_t stop = std::min(start + kRun, columns);
          float run_sum = 0.0f;
#pragma omp simd reduction(+ : run_sum)
          for (int64_t i = start; i < stop; ++i) run_sum += gn[i] * w[i] * h[i];
          dot += run_sum;
        }
        const float pull = dot / columns * inverse * inverse;
        float* const target = targets + row * columns;
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) target[i] = inverse * (gn[i] * w[i] - h[i] * pull);
        if (grads_h == nullptr) continue;
        const float* const gh = grads_h + row * columns;
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) target[i] += gh[i];
      }
    }
  });

  torch::Tensor grad_weight;
  if (want_grad_weight) grad_weight = partial_sums.sum(0);
  return {grad_sum, grad_weight};
}

torch::Tensor position_ids(const torch::Tensor& attention_mask_) {
  TORCH_CHECK(attention_mask_.dim() == 2, "attention_mask must have 2 dimensions, has ", attention_mask_.dim());
  TORCH_CHECK(attention_mask_.scalar_type() == torch::kInt64, "attention_mask must be int64");
  const auto attention_mask = attention_mask_.contiguous();
  auto positions = torch::empty_like(attention_mask);
  const int64_t length = attention_mask.size(1);
  const int64_t* const mask = attention_mask.const_data_ptr<int64_t>();
  int64_t* const position = positions.mutable_data_ptr<int64_t>();

  at::parallel_for(0, attention_mask.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t seen = 0;
      for (int64_t i = row * length; i < (row + 1) * length; ++i) {
        seen += mask[i];
        position[i] = std::max<int64_t>(seen - 1, 0);
      }
    }
  });
  return positions;
}
"""

kernels = load_inline(
    name="add_rms_norm_position_ids_cpu",
    cpp_sources=CPP_SOURCE,
    functions=["add_rms_norm_forward", "add_rms_norm_backward", "position_ids"],
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
)


class AddRmsNorm(torch.autograd.Function):
    """(h / sqrt(mean(h^2) + eps) * weight, h) with h = x + residual"""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        normalized, new_residual, inverse_rms = kernels.add_rms_norm_forward(x, residual, weight, eps)
        ctx.save_for_backward(new_residual, weight, inverse_rms)
        ctx.set_materialize_grads(False)
        return normalized, new_residual

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_normalized, grad_new_residual):
        if grad_normalized is None:
            return grad_new_residual, grad_new_residual, None, None
        new_residual, weight, inverse_rms = ctx.saved_tensors
        want_x, want_residual, want_weight, _ = ctx.needs_input_grad
        grad_sum, grad_weight = kernels.add_rms_norm_backward(
            grad_normalized, grad_new_residual, new_residual, weight, inverse_rms, want_x or want_residual, want_weight
        )
        return grad_sum if want_x else None, grad_sum if want_residual else None, grad_weight, None


class ModelNew(nn.Module):
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x, residual, attention_mask):
        normalized, new_residual = AddRmsNorm.apply(x, residual, self.weight, self.eps)
        return normalized, new_residual, kernels.position_ids(attention_mask)
