"""Causal depthwise Conv1d of width 4 -> SiLU in one CUDA kernel forward and one backward.

Fused: everything. A thread takes four neighbouring elements of a channel and reads its neighbours' through the L1
cache. The backward makes the convolved values again, its own four and the three after them, rather than keep them.

Bytes at full size, with X = 101 MB for one tensor:

              eager                                                        here
    forward    5 X  (pad and convolve 2, cut 0, SiLU 2, ...)               2 X
    backward   9 X  (SiLU 3, fill 2, dx 2, weight 2)                       3 X  (grad_output, x, dx)
    kept       2 X  (x, the convolved values)                              1 X  (x, which is there anyway)

Why the backward is right: with z_t = bias + sum over k of weight_k x_(t-3+k), s = sigmoid(z),

    dz_t = g_t s (1 + z_t (1 - s))        dx_t = sum over k of weight_k dz_(t+3-k), as x_t is in z_t to z_(t+3)
    dweight_k = sum over samples and time of dz_t x_(t-3+k)        dbias = sum of dz_t

with x zero before the start and dz zero after the end. A block takes one channel of one sample, sums its five
gradients and writes them; a sum over samples in a fixed order makes them the same in every run.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

torch::Tensor conv_silu_forward(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

std::tuple<torch::Tensor, torch::Tensor> conv_silu_backward(
    const torch::Tensor& grad_output, const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <tuple>

namespace {

constexpr int kWidth = 4;
constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kSums = kWidth + 1;

// Elements of a thread in the backward.
constexpr int kOwn = 8;

// row[t] to row[t + 3]; zeros before the start and after the end.
template <bool kAligned>
__device__ void load4(const float* row, int64_t t, int64_t length, float* to) {
  if constexpr (kAligned) {
    const bool there = t >= 0 && t < length;
    const float4 pack = there ? *reinterpret_cast<const float4*>(row + t) : make_float4(0, 0, 0, 0);
    to[0] = pack.x, to[1] = pack.y, to[2] = pack.z, to[3] = pack.w;
  } else {
    for (int i = 0; i < 4; ++i) to[i] = t + i >= 0 && t + i < length ? row[t + i] : 0.0f;
  }
}

template <bool kAligned>
__device__ void store4(float* row, int64_t t, int64_t length, const float* from) {
  if constexpr (kAligned) {
    if (t < length) *reinterpret_cast<float4*>(row + t) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    for (int i = 0; i < 4 && t + i < length; ++i) row[t + i] = from[i];
  }
}

// A channel's filter.
struct Filter {
  float weight[kWidth], bias;

  __device__ Filter(const float* weights, const float* biases, int64_t channel) : bias(biases[channel]) {
    for (int k = 0; k < kWidth; ++k) weight[k] = weights[channel * kWidth + k];
  }

  // The convolved value whose first input is x[0].
  __device__ float at(const float* x) const {
    float z = bias;
    for (int k = 0; k < kWidth; ++k) z += weight[k] * x[k];
    return z;
  }
};

__device__ float sigmoid(float z) { return __fdividef(1, 1 + __expf(-z)); }

template <bool kAligned>
__global__ void conv_silu_forward_kernel(
    const float* x, const float* weights, const float* biases, float* output, int64_t length) {
  const int64_t start = (int64_t(blockIdx.y) * gridDim.x + blockIdx.x) * length;
  const Filter filter(weights, biases, blockIdx.x);
  for (int64_t t = threadIdx.x * 4; t < length; t += kThreads * 4) {
    float inputs[8], y[4];  // from t - 4
    load4<kAligned>(x + start, t - 4, length, inputs);
    load4<kAligned>(x + start, t, length, inputs + 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float z = filter.at(inputs + 1 + i);
      y[i] = z * sigmoid(z);
    }
    store4<kAligned>(output + start, t, length, y);
  }
}

template <bool kAligned>
__global__ void conv_silu_backward_kernel(
    const float* grad_output, const float* x, const float* weights, const float* biases, float* grad_x,
    float* partial_sums, int64_t length) {
  const int64_t row = int64_t(blockIdx.y) * gridDim.x + blockIdx.x;
  const int64_t start = row * length;
  const Filter filter(weights, biases, blockIdx.x);
  float sums[kSums] = {};
  for (int64_t t = threadIdx.x * kOwn; t < length; t += kThreads * kOwn) {
    float inputs[kOwn + 8], g[kOwn + 4], dz[kOwn + 3], dx[kOwn] = {};  // inputs from t - 4, the others from t
#pragma unroll
    for (int i = 0; i < kOwn + 8; i += 4) load4<kAligned>(x + start, t - 4 + i, length, inputs + i);
#pragma unroll
    for (int i = 0; i < kOwn + 4; i += 4) load4<kAligned>(grad_output + start, t + i, length, g + i);
#pragma unroll
    for (int i = 0; i < kOwn + 3; ++i) {
      const float z = filter.at(inputs + 1 + i), s = sigmoid(z);
      dz[i] = g[i] * s * (1 + z * (1 - s));
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sums[kWidth] += dz[i];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        dx[i] += filter.weight[k] * dz[i + 3 - k];
        sums[k] += dz[i] * inputs[1 + i + k];
      }
    }
#pragma unroll
    for (int i = 0; i < kOwn; i += 4) store4<kAligned>(grad_x + start, t + i, length, dx + i);
  }

  __shared__ float shares[kThreads / kWarp][kSums];
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sums[k] += __shfl_down_sync(0xffffffffu, sums[k], distance);
    }
    if (threadIdx.x % kWarp == 0) shares[threadIdx.x / kWarp][k] = sums[k];
  }
  __syncthreads();
  if (threadIdx.x < kSums) {
    float sum = 0;
    for (int i = 0; i < kThreads / kWarp; ++i) sum += shares[i][threadIdx.x];
    partial_sums[row * kSums + threadIdx.x] = sum;
  }
}

void check(const torch::Tensor& tensor, const char* name, const torch::Tensor& like) {
  TORCH_CHECK(tensor.is_cuda(), name, " must be on the GPU, is on ", tensor.device());
  TORCH_CHECK(tensor.device() == like.device(), name, " must be on ", like.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

void check_all(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  TORCH_CHECK(x.dim() == 3, "x must have 3 dimensions, has ", x.dim());
  check(x, "x", x);
  check(weight, "weight", x);
  check(bias, "bias", x);
  TORCH_CHECK(weight.numel() == x.size(1) * kWidth && bias.numel() == x.size(1), "a filter of 4 for each channel");
}

bool in_packs(const torch::Tensor& tensor) {
  return tensor.size(2) % 4 == 0 && reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

dim3 grid(const torch::Tensor& x) { return dim3(unsigned(x.size(1)), unsigned(x.size(0))); }

}  // namespace

torch::Tensor conv_silu_forward(const torch::Tensor& x_, const torch::Tensor& weight_, const torch::Tensor& bias_) {
  check_all(x_, weight_, bias_);
  const c10::cuda::CUDAGuard guard(x_.device());
  const auto x = x_.contiguous(), weight = weight_.contiguous(), bias = bias_.contiguous();
  auto output = torch::empty(x.sizes(), x.options());
  if (output.numel() == 0) return output;
  const auto kernel = in_packs(x) ? conv_silu_forward_kernel<true> : conv_silu_forward_kernel<false>;
  kernel<<<grid(x), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.const_data_ptr<float>(), weight.const_data_ptr<float>(), bias.const_data_ptr<float>(),
      output.mutable_data_ptr<float>(), x.size(2));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

// The gradient of x, and one of the filter and its bias for each sample and channel.
std::tuple<torch::Tensor, torch::Tensor> conv_silu_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& x_, const torch::Tensor& weight_,
    const torch::Tensor& bias_) {
  check_all(x_, weight_, bias_);
  check(grad_output_, "grad_output", x_);
  TORCH_CHECK(grad_output_.sizes() == x_.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(x_.device());
  const auto grad_output = grad_output_.contiguous(), x = x_.contiguous();
  const auto weight = weight_.contiguous(), bias = bias_.contiguous();
  auto grad_x = torch::empty(x.sizes(), x.options());
  auto partial_sums = torch::empty({x.size(0), x.size(1), kSums}, x.options());
  if (x.numel() == 0) return {grad_x, partial_sums.zero_()};
  const auto kernel =
      in_packs(x) && in_packs(grad_output) ? conv_silu_backward_kernel<true> : conv_silu_backward_kernel<false>;
  kernel<<<grid(x), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      grad_output.const_data_ptr<float>(), x.const_data_ptr<float>(), weight.const_data_ptr<float>(),
      bias.const_data_ptr<float>(), grad_x.mutable_data_ptr<float>(), partial_sums.mutable_data_ptr<float>(),
      x.size(2));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {grad_x, partial_sums};
}
"""

kernels = load_inline(
    name="depthwise_conv1d_silu",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["conv_silu_forward", "conv_silu_backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class ConvSilu(torch.autograd.Function):
    """silu(causal depthwise convolution of x)"""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight, bias)
        return kernels.conv_silu_forward(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight, bias = ctx.saved_tensors
        want_x, want_weight, want_bias = ctx.needs_input_grad
        grad_x, partial_sums = kernels.conv_silu_backward(grad_output, x, weight, bias)
        sums = partial_sums.sum(0)
        return (
            grad_x if want_x else None,
            sums[:, :-1].reshape(weight.shape) if want_weight else None,
            sums[:, -1].contiguous() if want_bias else None,
        )


class ModelNew(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, width, groups=channels, padding=width - 1)

    def forward(self, x):
        return ConvSilu.apply(x, self.conv.weight, self.conv.bias)
