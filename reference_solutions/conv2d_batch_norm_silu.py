"""cuDNN's convolution, then BatchNorm2d -> SiLU in two passes over memory forward and two backward.

Fused: the normalisation with the activation. The first pass forward takes the statistics (train only), the second
normalizes and activates. The first pass backward makes the two sums that the gradient needs, the second the gradient;
both make SiLU's derivative again from the convolved values instead of reading it.

Bytes at full size, with C = 134 MB for the convolved tensor:

              eager                                              here
    forward    5 C  (statistics 1, normalize 2, SiLU 2)          3 C
    backward   8 C  (SiLU 3, two sums 2, gradient 3)             5 C
    kept       2 C                                               1 C

Why the backward is right: with r = 1 / sqrt(var + eps), n = (c - mean) * r, y = n * w + b, s = sigmoid(y), out = y * s,

    dL/dy = g * s * (1 + y * (1 - s))        dL/db = sum of dL/dy        dL/dw = sum of dL/dy * n

    train:  dL/dc = w * r * (dL/dy - (dL/db + n * dL/dw) / count)        mean and var depend on c
    eval:   dL/dc = w * r * dL/dy                                        mean and var are constants

Sums are taken per block in float32 and joined in float64 in a fixed order: the same result in every run. The variance
is the mean of (c - k)^2 less (mean - k)^2 with k a value of the channel itself, so nothing cancels when a channel lies
far from zero. running_var moves towards the unbiased variance, the output uses the biased one, as in PyTorch.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor> batch_statistics(const torch::Tensor& convolved);

torch::Tensor norm_silu_forward(
    const torch::Tensor& convolved, const torch::Tensor& mean, const torch::Tensor& inverse_std,
    const torch::Tensor& weight, const torch::Tensor& bias);

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> norm_silu_backward(
    const torch::Tensor& grad_output, const torch::Tensor& convolved, const torch::Tensor& mean,
    const torch::Tensor& inverse_std, const torch::Tensor& weight, const torch::Tensor& bias,
    bool statistics_from_batch, bool want_grad_convolved);
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
constexpr int kPacksPerThread = 4;

template <int WIDTH>
struct alignas(WIDTH * sizeof(float)) Pack {
  float value[WIDTH];
};

// The constants of a channel that turn a convolved value c into y = (c - mean) * inverse_std * weight + bias.
struct Channel {
  float mean, inverse_std, weight, bias;

  __device__ float normalized(float c) const { return (c - mean) * inverse_std; }
};

struct ChannelTable {
  const float* __restrict__ mean;
  const float* __restrict__ inverse_std;
  const float* __restrict__ weight;
  const float* __restrict__ bias;

  __device__ Channel operator[](int channel) const {
    return {mean[channel], inverse_std[channel], weight[channel], bias[channel]};
  }
};

__device__ __forceinline__ float sigmoid(float y) { return 1.0f / (1.0f + expf(-y)); }

__device__ __forceinline__ float silu_derivative(float y) {
  const float s = sigmoid(y);
  return s * (1.0f + y * (1.0f - s));
}

__device__ __forceinline__ float2 warp_sum(float2 value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value.x += __shfl_down_sync(0xffffffffu, value.x, offset);
    value.y += __shfl_down_sync(0xffffffffu, value.y, offset);
  }
  return value;
}

// Two sums over the block at once, in thread 0.
__device__ __forceinline__ float2 block_sum(float2 value) {
  __shared__ float2 warp_sums[kThreads / kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return {};
  return warp_sum(threadIdx.x < kThreads / kWarp ? warp_sums[threadIdx.x] : float2{});
}

// In the kernels below blockIdx.x is the (sample, channel) plane, and blockIdx.y shares out its packs.

// Sums of (c - k) and (c - k)^2, where k is the channel's first value in the first sample.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) statistics_kernel(
    const float* __restrict__ convolved, float2* __restrict__ partial_sums, int64_t plane_size, int channels) {
  const int64_t plane = blockIdx.x;
  const float k = convolved[(plane % channels) * plane_size];
  const auto* c = reinterpret_cast<const Pack<WIDTH>*>(convolved + plane * plane_size);

  float2 sums{};
  const int64_t packs = plane_size / WIDTH;
  for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < packs; i += int64_t(gridDim.y) * kThreads) {
    const Pack<WIDTH> pack = c[i];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const float distance = pack.value[j] - k;
      sums.x += distance;
      sums.y += distance * distance;
    }
  }
  sums = block_sum(sums);
  if (threadIdx.x == 0) partial_sums[plane * gridDim.y + blockIdx.y] = sums;
}

template <int WIDTH>
__global__ void __launch_bounds__(kThreads) norm_silu_forward_kernel(
    const float* __restrict__ convolved, ChannelTable table, float* __restrict__ output, int64_t plane_size,
    int channels) {
  const int64_t plane = blockIdx.x;
  const Channel channel = table[plane % channels];
  const auto* c = reinterpret_cast<const Pack<WIDTH>*>(convolved + plane * plane_size);
  auto* out = reinterpret_cast<Pack<WIDTH>*>(output + plane * plane_size);

  const int64_t packs = plane_size / WIDTH;
  for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < packs; i += int64_t(gridDim.y) * kThreads) {
    Pack<WIDTH> pack = c[i];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const float y = channel.normalized(pack.value[j]) * channel.weight + channel.bias;
      pack.value[j] = y * sigmoid(y);
    }
    out[i] = pack;
  }
}

// Sums of dL/dy and dL/dy * n: the gradients of bias and weight.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) gradient_sums_kernel(
    const float* __restrict__ grad_output, const float* __restrict__ convolved, ChannelTable table,
    float2* __restrict__ partial_sums, int64_t plane_size, int channels) {
  const int64_t plane = blockIdx.x;
  const Channel channel = table[plane % channels];
  const auto* g = reinterpret_cast<const Pack<WIDTH>*>(grad_output + plane * plane_size);
  const auto* c = reinterpret_cast<const Pack<WIDTH>*>(convolved + plane * plane_size);

  float2 sums{};
  const int64_t packs = plane_size / WIDTH;
  for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < packs; i += int64_t(gridDim.y) * kThreads) {
    const Pack<WIDTH> grad = g[i], pack = c[i];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const float n = channel.normalized(pack.value[j]);
      const float grad_y = grad.value[j] * silu_derivative(n * channel.weight + channel.bias);
      sums.x += grad_y;
      sums.y += grad_y * n;
    }
  }
  sums = block_sum(sums);
  if (threadIdx.x == 0) partial_sums[plane * gridDim.y + blockIdx.y] = sums;
}

// dL/dc. The means of dL/dy and dL/dy * n are null where the statistics are constants.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) norm_silu_backward_kernel(
    const float* __restrict__ grad_output, const float* __restrict__ convolved, ChannelTable table,
    const float* __restrict__ mean_grad, const float* __restrict__ mean_grad_normalized,
    float* __restrict__ grad_convolved, int64_t plane_size, int channels) {
  const int64_t plane = blockIdx.x;
  const int index = plane % channels;
  const Channel channel = table[index];
  const float offset = mean_grad == nullptr ? 0.0f : mean_grad[index];
  const float pull = mean_grad_normalized == nullptr ? 0.0f : mean_grad_normalized[index];
  const auto* g = reinterpret_cast<const Pack<WIDTH>*>(grad_output + plane * plane_size);
  const auto* c = reinterpret_cast<const Pack<WIDTH>*>(convolved + plane * plane_size);
  auto* grad_c = reinterpret_cast<Pack<WIDTH>*>(grad_convolved + plane * plane_size);

  const int64_t packs = plane_size / WIDTH;
  for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < packs; i += int64_t(gridDim.y) * kThreads) {
    Pack<WIDTH> grad = g[i];
    const Pack<WIDTH> pack = c[i];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const float n = channel.normalized(pack.value[j]);
      const float grad_y = grad.value[j] * silu_derivative(n * channel.weight + channel.bias);
      grad.value[j] = channel.weight * channel.inverse_std * (grad_y - offset - n * pull);
    }
    grad_c[i] = grad;
  }
}

void check(const torch::Tensor& tensor, const char* name, const torch::Tensor& like) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == like.device(), name, " must be on ", like.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

void check_channels(const torch::Tensor& tensor, const char* name, const torch::Tensor& convolved) {
  check(tensor, name, convolved);
  TORCH_CHECK(tensor.is_contiguous() && tensor.numel() == convolved.size(1), name, " must have one value per channel");
}

// Tensors from the caller may start anywhere, those allocated here are aligned.
bool starts_on_float4(const torch::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % sizeof(float4) == 0;
}

// How a tensor of (sample, channel) planes is shared out.
struct Layout {
  int64_t samples, channels, plane_size;
  bool vectorized;

  Layout(const torch::Tensor& convolved, bool aligned)
      : samples(convolved.size(0)),
        channels(convolved.size(1)),
        plane_size(convolved.size(2) * convolved.size(3)),
        vectorized(aligned && plane_size % 4 == 0) {}

  int64_t values_per_channel() const { return samples * plane_size; }

  dim3 grid() const {
    const int64_t share = int64_t(kThreads) * kPacksPerThread * (vectorized ? 4 : 1);
    const int64_t blocks = std::clamp<int64_t>((plane_size + share - 1) / share, 1, 65535);
    return dim3(static_cast<unsigned>(samples * channels), static_cast<unsigned>(blocks));
  }

  torch::Tensor empty_partial_sums(const torch::Tensor& like) const {
    return torch::empty({samples, channels, int64_t(grid().y), 2}, like.options());
  }
};

// From one pair of float32 sums per block to one pair of float64 sums per channel.
torch::Tensor join(const torch::Tensor& partial_sums) {
  return partial_sums.sum(at::IntArrayRef({0, 2}), false, torch::kFloat64);
}

float2* pairs(torch::Tensor& partial_sums) { return reinterpret_cast<float2*>(partial_sums.mutable_data_ptr<float>()); }

}  // namespace

// Mean and biased variance of every channel, in float64.
std::tuple<torch::Tensor, torch::Tensor> batch_statistics(const torch::Tensor& convolved_) {
  TORCH_CHECK(convolved_.dim() == 4, "convolved must have 4 dimensions, has ", convolved_.dim());
  check(convolved_, "convolved", convolved_);
  TORCH_CHECK(convolved_.numel() > 0, "convolved must not be empty");
  const c10::cuda::CUDAGuard guard(convolved_.device());
  const auto convolved = convolved_.contiguous();

  const Layout layout(convolved, starts_on_float4(convolved));
  auto partial_sums = layout.empty_partial_sums(convolved);
  const auto kernel = layout.vectorized ? statistics_kernel<4> : statistics_kernel<1>;
  kernel<<<layout.grid(), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      convolved.const_data_ptr<float>(), pairs(partial_sums), layout.plane_size, int(layout.channels));
  C10_CUDA_KERNEL_LAUNCH_CHECK();

  const auto moments = join(partial_sums) / double(layout.values_per_channel());
  const auto distance = moments.select(1, 0);
  const auto k = convolved.select(0, 0).flatten(1).select(1, 0).to(torch::kFloat64);
  return {k + distance, (moments.select(1, 1) - distance * distance).clamp_min(0.0)};
}

torch::Tensor norm_silu_forward(
    const torch::Tensor& convolved_, const torch::Tensor& mean, const torch::Tensor& inverse_std,
    const torch::Tensor& weight, const torch::Tensor& bias) {
  TORCH_CHECK(convolved_.dim() == 4, "convolved must have 4 dimensions, has ", convolved_.dim());
  check(convolved_, "convolved", convolved_);
  check_channels(mean, "mean", convolved_);
  check_channels(inverse_std, "inverse_std", convolved_);
  check_channels(weight, "weight", convolved_);
  check_channels(bias, "bias", convolved_);
  const c10::cuda::CUDAGuard guard(convolved_.device());
  const auto convolved = convolved_.contiguous();
  auto output = torch::empty(convolved.sizes(), convolved.options());
  if (output.numel() == 0) return output;

  const Layout layout(convolved, starts_on_float4(convolved));
  const ChannelTable table{mean.const_data_ptr<float>(), inverse_std.const_data_ptr<float>(),
                           weight.const_data_ptr<float>(), bias.const_data_ptr<float>()};
  const auto kernel = layout.vectorized ? norm_silu_forward_kernel<4> : norm_silu_forward_kernel<1>;
  kernel<<<layout.grid(), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      convolved.const_data_ptr<float>(), table, output.mutable_data_ptr<float>(), layout.plane_size,
      int(layout.channels));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> norm_silu_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& convolved_, const torch::Tensor& mean,
    const torch::Tensor& inverse_std, const torch::Tensor& weight, const torch::Tensor& bias,
    bool statistics_from_batch, bool want_grad_convolved) {
  check(grad_output_, "grad_output", convolved_);
  TORCH_CHECK(grad_output_.sizes() == convolved_.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(convolved_.device());
  const auto grad_output = grad_output_.contiguous();
  const auto convolved = convolved_.contiguous();
  torch::Tensor grad_convolved;
  if (want_grad_convolved) grad_convolved = torch::empty(convolved.sizes(), convolved.options());
  if (convolved.numel() == 0) return {grad_convolved, torch::zeros_like(weight), torch::zeros_like(bias)};

  const Layout layout(convolved, starts_on_float4(convolved) && starts_on_float4(grad_output));
  const ChannelTable table{mean.const_data_ptr<float>(), inverse_std.const_data_ptr<float>(),
                           weight.const_data_ptr<float>(), bias.const_data_ptr<float>()};
  const auto stream = c10::cuda::getCurrentCUDAStream();

  auto partial_sums = layout.empty_partial_sums(convolved);
  const auto sums_kernel = layout.vectorized ? gradient_sums_kernel<4> : gradient_sums_kernel<1>;
  sums_kernel<<<layout.grid(), kThreads, 0, stream>>>(
      grad_output.const_data_ptr<float>(), convolved.const_data_ptr<float>(), table, pairs(partial_sums),
      layout.plane_size, int(layout.channels));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  const auto sums = join(partial_sums).t();
  const auto gradients = sums.to(torch::kFloat32).contiguous();

  if (want_grad_convolved) {
    const auto means = (sums / double(layout.values_per_channel())).to(torch::kFloat32).contiguous();
    const float* const mean_grad = statistics_from_batch ? means.const_data_ptr<float>() : nullptr;
    const float* const mean_grad_normalized = statistics_from_batch ? mean_grad + layout.channels : nullptr;
    const auto kernel = layout.vectorized ? norm_silu_backward_kernel<4> : norm_silu_backward_kernel<1>;
    kernel<<<layout.grid(), kThreads, 0, stream>>>(
        grad_output.const_data_ptr<float>(), convolved.const_data_ptr<float>(), table, mean_grad,
        mean_grad_normalized, grad_convolved.mutable_data_ptr<float>(), layout.plane_size, int(layout.channels));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  return {grad_convolved, gradients.select(0, 1), gradients.select(0, 0)};
}
"""

kernels = load_inline(
    name="conv2d_batch_norm_silu",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["batch_statistics", "norm_silu_forward", "norm_silu_backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class NormSilu(torch.autograd.Function):
    """silu((convolved - mean) * inverse_std * weight + bias)

    Whether mean and inverse_std were taken from convolved itself decides what the gradient of convolved is.
    """

    @staticmethod
    def forward(ctx, convolved, weight, bias, mean, inverse_std, statistics_from_batch):
        ctx.save_for_backward(convolved, weight, bias, mean, inverse_std)
        ctx.statistics_from_batch = statistics_from_batch
        return kernels.norm_silu_forward(convolved, mean, inverse_std, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        convolved, weight, bias, mean, inverse_std = ctx.saved_tensors
        want_convolved, want_weight, want_bias = ctx.needs_input_grad[:3]
        grad_convolved, grad_weight, grad_bias = kernels.norm_silu_backward(
            grad_output, convolved, mean, inverse_std, weight, bias, ctx.statistics_from_batch, want_convolved
        )
        return grad_convolved, grad_weight if want_weight else None, grad_bias if want_bias else None, None, None, None


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, eps, momentum):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, eps=eps, momentum=momentum)

    def forward(self, x):
        convolved = self.conv(x)
        mean, variance = self._batch_statistics(convolved) if self.bn.training else self._running_statistics()
        inverse_std = torch.rsqrt(variance + self.bn.eps)
        return NormSilu.apply(
            convolved, self.bn.weight, self.bn.bias, mean.float(), inverse_std.float(), self.bn.training
        )

    @torch.no_grad()
    def _batch_statistics(self, convolved):
        """Mean and biased variance of the batch; the running statistics move towards them on the way."""
        count = convolved.numel() // convolved.shape[1]
        if count < 2:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {convolved.shape}")
        mean, variance = kernels.batch_statistics(convolved)
        self.bn.num_batches_tracked.add_(1)
        self.bn.running_mean.lerp_(mean.float(), self.bn.momentum)
        self.bn.running_var.lerp_((variance * (count / (count - 1))).float(), self.bn.momentum)
        return mean, variance

    def _running_statistics(self):
        return self.bn.running_mean.double(), self.bn.running_var.double()
