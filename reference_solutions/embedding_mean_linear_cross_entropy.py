"""Embedding lookup -> mean in one kernel, cuBLAS's linear layer, and the smoothed cross entropy in one kernel.

Fused: the lookup with the mean, so that the looked-up tensor, 64 times the size of its mean, exists in neither
direction; and log-softmax with the smoothed loss.

Bytes at full size, with E = 268 MB for the looked-up tensor, W = 51 MB for the embedding and L = 16 MB for the logits:

                          eager                                                here
    lookup and mean       3 E  (gather 2, mean 1)                              1 E
    its backward          3 E + 2 W  (expand 1, scatter 1 or 2, fill)          1 E + 1 W  (E from the L2 cache)
    loss                  3 L  (log-softmax 2, smoothing 1)                    1 L
    its backward          6 L                                                  2 L

Why the backward is right. For the loss of a sample with logits z, target t, C classes and smoothing e,

    loss = logsumexp(z) - (1 - e) z_t - e mean(z)        dloss/dz_j = softmax(z)_j - (1 - e) [j = t] - e / C

and 0 for both where the target is ignored, whatever grad_output is. For the mean of T looked-up rows, row v of the
embedding's gradient is 1 / T of the sum of grad_pooled over every appearance of v. The appearances are sorted by token
once, stably; then each row is the work of one warp, which adds in that order and writes the row, zeros included: no
atomics, no fill, and the same result in every run.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

torch::Tensor embedding_mean_forward(const torch::Tensor& tokens, const torch::Tensor& weight);

torch::Tensor embedding_mean_backward(
    const torch::Tensor& grad_pooled, const torch::Tensor& tokens, int64_t num_embeddings);

std::tuple<torch::Tensor, torch::Tensor> smoothed_loss_forward(
    const torch::Tensor& logits, const torch::Tensor& targets, double smoothing, int64_t ignored);

torch::Tensor smoothed_loss_backward(
    const torch::Tensor& grad_loss, const torch::Tensor& logits, const torch::Tensor& targets,
    const torch::Tensor& log_normalizers, double smoothing, int64_t ignored);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

template <int WIDTH>
struct alignas(WIDTH * sizeof(float)) Pack {
  float value[WIDTH];
};

struct Sum {
  static constexpr float identity = 0.0f;
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Like torch.max, and unlike fmaxf, a NaN wins.
struct Max {
  static constexpr float identity = -INFINITY;
  __device__ float operator()(float a, float b) const { return a > b || isnan(a) ? a : b; }
};

// The reduction over the block, in every thread. Safe to call repeatedly.
template <typename Operator>
__device__ __forceinline__ float block_reduce(float value, Operator combine) {
  __shared__ float warp_results[kWarps];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) warp_results[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warp_results[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) value = combine(value, warp_results[warp]);
  return value;
}

// One block a bag; blockDim.x threads share out the columns of its mean.
template <int WIDTH>
__global__ void embedding_mean_forward_kernel(
    const int64_t* __restrict__ tokens, const float* __restrict__ weight, float* __restrict__ pooled,
    int64_t tokens_per_bag, int64_t num_embeddings, int64_t columns) {
  const int64_t bag = blockIdx.x;
  const int64_t packs = columns / WIDTH;
  tokens += bag * tokens_per_bag;

  for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    Pack<WIDTH> sum{};
#pragma unroll 4
    for (int64_t t = 0; t < tokens_per_bag; ++t) {
      const int64_t token = tokens[t];
      CUDA_KERNEL_ASSERT(token >= 0 && token < num_embeddings);
      const auto row = reinterpret_cast<const Pack<WIDTH>*>(weight + token * columns)[i];
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) sum.value[k] += row.value[k];
    }
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) sum.value[k] /= tokens_per_bag;
    reinterpret_cast<Pack<WIDTH>*>(pooled + bag * columns)[i] = sum;
  }
}

// One warp a row of the embedding. Token v appears at the positions appearances[first[v]] to
// appearances[first[v + 1] - 1] of the flattened tokens; a position's bag is its quotient by tokens_per_bag.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) embedding_mean_backward_kernel(
    const float* __restrict__ grad_pooled, const int64_t* __restrict__ appearances, const int64_t* __restrict__ first,
    float* __restrict__ grad_weight, int64_t tokens_per_bag, int64_t num_embeddings, int64_t columns) {
  const int64_t token = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (token >= num_embeddings) return;
  const int64_t begin = first[token], end = first[token + 1];
  const int64_t packs = columns / WIDTH;

  for (int64_t i = threadIdx.x % kWarp; i < packs; i += kWarp) {
    Pack<WIDTH> sum{};
    for (int64_t a = begin; a < end; ++a) {
      const int64_t bag = appearances[a] / tokens_per_bag;
      const auto row = reinterpret_cast<const Pack<WIDTH>*>(grad_pooled + bag * columns)[i];
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) sum.value[k] += row.value[k];
    }
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) sum.value[k] /= tokens_per_bag;
    reinterpret_cast<Pack<WIDTH>*>(grad_weight + token * columns)[i] = sum;
  }
}

// One block a sample. All is relative to the largest logit, so that exponentials stay within [0, 1].
__global__ void __launch_bounds__(kThreads) smoothed_loss_forward_kernel(
    const float* __restrict__ logits, const int64_t* __restrict__ targets, float* __restrict__ losses,
    float* __restrict__ log_normalizers, int64_t classes, float smoothing, int64_t ignored) {
  const int64_t sample = blockIdx.x;
  const int64_t target = targets[sample];
  if (target == ignored) {
    if (threadIdx.x == 0) losses[sample] = log_normalizers[sample] = 0.0f;
    return;
  }
  CUDA_KERNEL_ASSERT(target >= 0 && target < classes);
  logits += sample * classes;

  float largest = Max::identity;
  for (int64_t i = threadIdx.x; i < classes; i += kThreads) largest = Max()(largest, logits[i]);
  largest = block_reduce(largest, Max());

  float normalizer = 0.0f, total = 0.0f;
  for (int64_t i = threadIdx.x; i < classes; i += kThreads) {
    const float distance = logits[i] - largest;
    normalizer += expf(distance);
    total += distance;
  }
  normalizer = block_reduce(normalizer, Sum());
  total = block_reduce(total, Sum());

  if (threadIdx.x == 0) {
    const float log_normalizer = logf(normalizer);
    const float of_target = log_normalizer - (logits[target] - largest);
    const float of_all = log_normalizer - total / classes;
    losses[sample] = (1.0f - smoothing) * of_target + smoothing * of_all;
    log_normalizers[sample] = largest + log_normalizer;
  }
}

__global__ void __launch_bounds__(kThreads) smoothed_loss_backward_kernel(
    const float* __restrict__ grad_loss, const float* __restrict__ logits, const int64_t* __restrict__ targets,
    const float* __restrict__ log_normalizers, float* __restrict__ grad_logits, int64_t classes, float smoothing,
    int64_t ignored) {
  const int64_t sample = blockIdx.x;
  const int64_t target = targets[sample];
  const float grad = grad_loss[sample];
  const float log_normalizer = log_normalizers[sample];
  const float everywhere = smoothing / classes;
  logits += sample * classes;
  grad_logits += sample * classes;

  for (int64_t i = threadIdx.x; i < classes; i += kThreads) {
    const float softmax = expf(logits[i] - log_normalizer);
    const float wanted = everywhere + (i == target ? 1.0f - smoothing : 0.0f);
    grad_logits[i] = target == ignored ? 0.0f : grad * (softmax - wanted);
  }
}

void check(const torch::Tensor& tensor, const char* name, torch::ScalarType type, const torch::Tensor& like) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == like.device(), name, " must be on ", like.device());
  TORCH_CHECK(tensor.scalar_type() == type, name, " must be ", type, ", is ", tensor.scalar_type());
}

// Tensors from the caller may start anywhere, those allocated here are aligned.
bool starts_on_float4(const torch::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % sizeof(float4) == 0;
}

}  // namespace

torch::Tensor embedding_mean_forward(const torch::Tensor& tokens_, const torch::Tensor& weight_) {
  TORCH_CHECK(weight_.dim() == 2 && tokens_.dim() == 2, "weight and tokens must have 2 dimensions");
  check(weight_, "weight", torch::kFloat32, weight_);
  check(tokens_, "tokens", torch::kInt64, weight_);
  const c10::cuda::CUDAGuard guard(weight_.device());
  const auto tokens = tokens_.contiguous(), weight = weight_.contiguous();
  const int64_t bags = tokens.size(0), tokens_per_bag = tokens.size(1), columns = weight.size(1);
  TORCH_CHECK(tokens_per_bag > 0, "a bag must hold a token");
  auto pooled = torch::empty({bags, columns}, weight.options());
  if (pooled.numel() == 0) return pooled;

  const bool vectorized = columns % 4 == 0 && starts_on_float4(weight);
  const auto kernel = vectorized ? embedding_mean_forward_kernel<4> : embedding_mean_forward_kernel<1>;
  const int64_t packs = columns / (vectorized ? 4 : 1);
  const int64_t threads = std::min<int64_t>((packs + kWarp - 1) / kWarp * kWarp, kThreads);
  kernel<<<static_cast<unsigned>(bags), static_cast<unsigned>(threads), 0, c10::cuda::getCurrentCUDAStream()>>>(
      tokens.const_data_ptr<int64_t>(), weight.const_data_ptr<float>(), pooled.mutable_data_ptr<float>(),
      tokens_per_bag, weight.size(0), columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return pooled;
}

torch::Tensor embedding_mean_backward(
    const torch::Tensor& grad_pooled_, const torch::Tensor& tokens, int64_t num_embeddings) {
  check(grad_pooled_, "grad_pooled", torch::kFloat32, tokens);
  const c10::cuda::CUDAGuard guard(tokens.device());
  const auto grad_pooled = grad_pooled_.contiguous();
  const int64_t tokens_per_bag = tokens.size(1), columns = grad_pooled.size(1);
  auto grad_weight = torch::empty({num_embeddings, columns}, grad_pooled.options());
  if (grad_weight.numel() == 0) return grad_weight;

  constexpr std::optional<bool> stable = true;
  const auto [sorted, appearances] = torch::sort(tokens.reshape({-1}), stable, /*dim=*/0, /*descending=*/false);
  const auto first = torch::searchsorted(sorted, torch::arange(num_embeddings + 1, tokens.options()));

  const bool vectorized = columns % 4 == 0 && starts_on_float4(grad_pooled);
  const auto kernel = vectorized ? embedding_mean_backward_kernel<4> : embedding_mean_backward_kernel<1>;
  const auto blocks = static_cast<unsigned>((num_embeddings + kWarps - 1) / kWarps);
  kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      grad_pooled.const_data_ptr<float>(), appearances.const_data_ptr<int64_t>(), first.const_data_ptr<int64_t>(),
      grad_weight.mutable_data_ptr<float>(), tokens_per_bag, num_embeddings, columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_weight;
}

std::tuple<torch::Tensor, torch::Tensor> smoothed_loss_forward(
    const torch::Tensor& logits_, const torch::Tensor& targets_, double smoothing, int64_t ignored) {
  TORCH_CHECK(logits_.dim() == 2, "logits must have 2 dimensions, has ", logits_.dim());
  check(logits_, "logits", torch::kFloat32, logits_);
  check(targets_, "targets", torch::kInt64, logits_);
  TORCH_CHECK(targets_.dim() == 1 && targets_.size(0) == logits_.size(0), "targets must have one index per sample");
  const c10::cuda::CUDAGuard guard(logits_.device());
  const auto logits = logits_.contiguous(), targets = targets_.contiguous();
  const int64_t samples = logits.size(0), classes = logits.size(1);
  auto losses = torch::empty({samples}, logits.options());
  auto log_normalizers = torch::empty({samples}, logits.options());
  if (samples == 0) return {losses, log_normalizers};

  smoothed_loss_forward_kernel<<<static_cast<unsigned>(samples), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      logits.const_data_ptr<float>(), targets.const_data_ptr<int64_t>(), losses.mutable_data_ptr<float>(),
      log_normalizers.mutable_data_ptr<float>(), classes, float(smoothing), ignored);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {losses, log_normalizers};
}

torch::Tensor smoothed_loss_backward(
    const torch::Tensor& grad_loss_, const torch::Tensor& logits_, const torch::Tensor& targets_,
    const torch::Tensor& log_normalizers, double smoothing, int64_t ignored) {
  check(grad_loss_, "grad_loss", torch::kFloat32, logits_);
  TORCH_CHECK(grad_loss_.sizes() == log_normalizers.sizes(), "grad_loss must have one value per sample");
  const c10::cuda::CUDAGuard guard(logits_.device());
  const auto grad_loss = grad_loss_.contiguous(), logits = logits_.contiguous(), targets = targets_.contiguous();
  const int64_t samples = logits.size(0), classes = logits.size(1);
  auto grad_logits = torch::empty({samples, classes}, logits.options());
  if (grad_logits.numel() == 0) return grad_logits;

  smoothed_loss_backward_kernel<<<static_cast<unsigned>(samples), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      grad_loss.const_data_ptr<float>(), logits.const_data_ptr<float>(), targets.const_data_ptr<int64_t>(),
      log_normalizers.const_data_ptr<float>(), grad_logits.mutable_data_ptr<float>(), classes, float(smoothing),
      ignored);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_logits;
}
"""

IGNORED = -100

kernels = load_inline(
    name="embedding_mean_linear_cross_entropy",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=[
        "embedding_mean_forward",
        "embedding_mean_backward",
        "smoothed_loss_forward",
        "smoothed_loss_backward",
    ],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class EmbeddingMean(torch.autograd.Function):
    """weight[tokens].mean(dim=1)"""

    @staticmethod
    def forward(ctx, tokens, weight):
        ctx.save_for_backward(tokens)
        ctx.num_embeddings = weight.shape[0]
        return kernels.embedding_mean_forward(tokens, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_pooled):
        (tokens,) = ctx.saved_tensors
        return None, kernels.embedding_mean_backward(grad_pooled, tokens, ctx.num_embeddings)


class SmoothedCrossEntropy(torch.autograd.Function):
    """cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED, label_smoothing=smoothing)"""

    @staticmethod
    def forward(ctx, logits, targets, smoothing):
        losses, log_normalizers = kernels.smoothed_loss_forward(logits, targets, smoothing, IGNORED)
        ctx.save_for_backward(logits, targets, log_normalizers)
        ctx.smoothing = smoothing
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_losses):
        logits, targets, log_normalizers = ctx.saved_tensors
        grad_logits = kernels.smoothed_loss_backward(
            grad_losses, logits, targets, log_normalizers, ctx.smoothing, IGNORED
        )
        return grad_logits, None, None


class ModelNew(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, num_classes, label_smoothing):
        super().__init__()
        self.embedding = nn.Embedding(num_embeddings, embedding_dim)
        self.linear = nn.Linear(embedding_dim, num_classes)
        self.label_smoothing = label_smoothing

    def forward(self, tokens, targets):
        pooled = EmbeddingMean.apply(tokens, self.embedding.weight)
        return SmoothedCrossEntropy.apply(self.linear(pooled), targets, self.label_smoothing)
