"""GroupNorm -> SiLU in one CUDA kernel forward and one backward, a cluster of eight blocks for each group.

Fused: everything. A group's 164 kB do not fit in the registers of one block, but in those of a cluster: each block
takes an eighth of the pixels, a warp the pixels of one channel, and the blocks add up their sums through each other's
shared memory. So each element is read once. One block for each group reads it twice, from memory: all groups in
progress together are larger than the L2 cache.

Bytes of memory traffic at full size, with C = 84 MB for one tensor of images:

              eager                                                     here
    forward    5 C  (statistics 1, normalize 2, SiLU 2)                 2 C
    backward   8 C  (SiLU 3, sums 2, dx 3)                              3 C  (grad_output, x, dx)
    kept       2 C  (x, the normalized tensor)                          1 C  (x, which is there anyway)

Why the backward is right: with n = (x - mean) * r, r = 1 / sqrt(var + eps), z = n * weight + bias, s = sigmoid(z),
and means over a group,

    dL/dz = g * s * (1 + z * (1 - s))        dL/dn = dL/dz * weight
    dL/dx = r * (dL/dn - mean(dL/dn) - n * mean(dL/dn * n))
    dL/dweight = sum over samples and pixels of dL/dz * n        dL/dbias = sum of dL/dz

The means follow from the sums of each channel, which are needed for weight and bias anyway. Each block writes the
sums of its pixels; a sum over blocks and samples in a fixed order makes the gradients the same in every run.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor> norm_silu_forward(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t groups, double eps);

std::tuple<torch::Tensor, torch::Tensor> norm_silu_backward(
    const torch::Tensor& grad_output, const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
    const torch::Tensor& statistics, int64_t groups);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace {

namespace cg = cooperative_groups;

constexpr int kWarp = 32;
constexpr int kMostWarps = 16;
constexpr int kCluster = 8;

// The part of a group that a block takes: some pixels of each channel. A warp has packs of four pixels of a channel.
struct Part {
  int channels, groups;
  int64_t pixels, share;

  __device__ int group() const { return blockIdx.x / kCluster; }
  __device__ int first_channel() const { return group() % groups * channels; }
  __device__ int64_t start() const { return int64_t(group()) * channels * pixels; }
  __device__ int64_t begin() const { return int64_t(blockIdx.x % kCluster) * share; }
  __device__ int64_t end() const { return min(begin() + share, pixels); }

  // Calls visit(k, channel, pixel) for each pack. With kPacks, k counts a warp's packs, all of one channel.
  template <int kPacks, class Visit>
  __device__ void each(Visit visit) const {
    if constexpr (kPacks > 0) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int64_t pixel = begin() + (k * kWarp + threadIdx.x) * 4;
        if (pixel < end()) visit(k, int(threadIdx.y), pixel);
      }
    } else {
      for (int channel = threadIdx.y; channel < channels; channel += blockDim.y) {
        for (int64_t pixel = begin() + threadIdx.x * 4; pixel < end(); pixel += kWarp * 4) visit(0, channel, pixel);
      }
    }
  }
};

template <bool kAligned>
__device__ void load4(const float* from, int64_t count, float fill, float (&to)[4]) {
  if constexpr (kAligned) {
    const float4 pack = *reinterpret_cast<const float4*>(from);
    to[0] = pack.x, to[1] = pack.y, to[2] = pack.z, to[3] = pack.w;
  } else {
    for (int i = 0; i < 4; ++i) to[i] = i < count ? from[i] : fill;
  }
}

template <bool kAligned>
__device__ void store4(float* to, int64_t count, const float (&from)[4]) {
  if constexpr (kAligned) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    for (int i = 0; i < 4 && i < count; ++i) to[i] = from[i];
  }
}

__device__ float over_warp(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// Sums over all threads of the cluster, in each of them.
__device__ float2 over_cluster(float a, float b) {
  __shared__ float2 warps[kMostWarps], block, all;
  const auto cluster = cg::this_cluster();
  a = over_warp(a);
  b = over_warp(b);
  if (threadIdx.x == 0) warps[threadIdx.y] = {a, b};
  __syncthreads();
  if (threadIdx.y == 0) {
    const bool there = threadIdx.x < blockDim.y;
    a = over_warp(there ? warps[threadIdx.x].x : 0.0f);
    b = over_warp(there ? warps[threadIdx.x].y : 0.0f);
    if (threadIdx.x == 0) block = {a, b};
  }
  cluster.sync();
  if (threadIdx.y == 0) {
    const bool there = threadIdx.x < kCluster;
    const float2 other = there ? *cluster.map_shared_rank(&block, threadIdx.x) : float2{0, 0};
    a = over_warp(other.x);
    b = over_warp(other.y);
    if (threadIdx.x == 0) all = {a, b};
  }
  cluster.sync();  // nobody leaves while others read
  return all;
}

__device__ float sigmoid(float z) { return __fdividef(1, 1 + __expf(-z)); }

// Statistics are those of differences from the group's first element: a mean far from zero costs no digits.
template <int kPacks, bool kAligned>
__global__ void __cluster_dims__(kCluster, 1, 1) norm_silu_forward_kernel(
    const float* x, const float* weight, const float* bias, float* y, float* statistics, Part part, float eps) {
  const float* const from = x + part.start();
  const float first = *from;
  float d[std::max(kPacks, 1)][4];
  float sum = 0, squares = 0;
  part.each<kPacks>([&](int k, int channel, int64_t pixel) {
    load4<kAligned>(from + channel * part.pixels + pixel, part.end() - pixel, first, d[k]);
    if constexpr (kPacks == 0) {
      for (float value : d[k]) sum += value - first, squares += (value - first) * (value - first);
    }
  });
  if constexpr (kPacks > 0) {
    part.each<kPacks>([&](int k, int, int64_t) {
      for (float value : d[k]) sum += value - first, squares += (value - first) * (value - first);
    });
  }
  const float2 sums = over_cluster(sum, squares);
  const float count = float(part.channels * part.pixels), distance = sums.x / count;
  const float inverse = rsqrtf(fmaxf(sums.y / count - distance * distance, 0) + eps), mean = first + distance;
  if (blockIdx.x % kCluster == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
    statistics[2 * part.group()] = mean;
    statistics[2 * part.group() + 1] = inverse;
  }
  part.each<kPacks>([&](int k, int channel, int64_t pixel) {
    const int64_t at = channel * part.pixels + pixel;
    if constexpr (kPacks == 0) load4<kAligned>(from + at, part.end() - pixel, first, d[k]);
    const float w = weight[part.first_channel() + channel], b = bias[part.first_channel() + channel];
    for (float& value : d[k]) {
      const float z = (value - first - distance) * inverse * w + b;
      value = z * sigmoid(z);
    }
    store4<kAligned>(y + part.start() + at, part.end() - pixel, d[k]);
  });
}

// `sums` has dL/dz * n and dL/dz over the pixels of each channel and block.
template <int kPacks, bool kAligned>
__global__ void __cluster_dims__(kCluster, 1, 1) norm_silu_backward_kernel(
    const float* grad_output, const float* x, const float* weight, const float* bias, const float* statistics,
    float* grad_x, float* sums, Part part) {
  const int64_t start = part.start();
  const float mean = statistics[2 * part.group()], inverse = statistics[2 * part.group() + 1];
  const float *const weights = weight + part.first_channel(), *const biases = bias + part.first_channel();
  float n[std::max(kPacks, 1)][4], dz[std::max(kPacks, 1)][4];
  const auto load = [&](int k, int channel, int64_t pixel) {
    const int64_t at = start + channel * part.pixels + pixel;
    load4<kAligned>(x + at, part.end() - pixel, mean, n[k]);
    load4<kAligned>(grad_output + at, part.end() - pixel, 0, dz[k]);
  };
  const auto differentiate = [&](int k, int channel) {
    for (int i = 0; i < 4; ++i) {
      n[k][i] = (n[k][i] - mean) * inverse;
      const float z = n[k][i] * weights[channel] + biases[channel], s = sigmoid(z);
      dz[k][i] *= s * (1 + z * (1 - s));
    }
  };
  float* const own = sums + int64_t(blockIdx.x) * part.channels * 2;
  float sum_dn = 0, sum_dn_n = 0;
  const auto finish = [&](int channel, float dweight, float dbias) {
    dweight = over_warp(dweight);
    dbias = over_warp(dbias);
    if (threadIdx.x != 0) return;
    own[2 * channel] = dweight;
    own[2 * channel + 1] = dbias;
    sum_dn += weights[channel] * dbias;
    sum_dn_n += weights[channel] * dweight;
  };
  if constexpr (kPacks > 0) {
    part.each<kPacks>(load);  // all of them before the first is used
    float dweight = 0, dbias = 0;
    part.each<kPacks>([&](int k, int channel, int64_t) {
      differentiate(k, channel);
      for (int i = 0; i < 4; ++i) dweight += dz[k][i] * n[k][i], dbias += dz[k][i];
    });
    finish(threadIdx.y, dweight, dbias);
  } else {
    for (int channel = threadIdx.y; channel < part.channels; channel += blockDim.y) {
      float dweight = 0, dbias = 0;
      for (int64_t pixel = part.begin() + threadIdx.x * 4; pixel < part.end(); pixel += kWarp * 4) {
        load(0, channel, pixel), differentiate(0, channel);
        for (int i = 0; i < 4; ++i) dweight += dz[0][i] * n[0][i], dbias += dz[0][i];
      }
      finish(channel, dweight, dbias);
    }
  }
  const float2 totals = over_cluster(sum_dn, sum_dn_n);
  const float count = float(part.channels * part.pixels), mean_dn = totals.x / count, mean_dn_n = totals.y / count;
  part.each<kPacks>([&](int k, int channel, int64_t pixel) {
    if constexpr (kPacks == 0) load(k, channel, pixel), differentiate(k, channel);
    for (int i = 0; i < 4; ++i) dz[k][i] = inverse * (dz[k][i] * weights[channel] - mean_dn - n[k][i] * mean_dn_n);
    store4<kAligned>(grad_x + start + channel * part.pixels + pixel, part.end() - pixel, dz[k]);
  });
}

void check(const torch::Tensor& tensor, const char* name, const torch::Tensor& like) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == like.device(), name, " must be on the GPU, with the others");
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
}

Part part_of(const torch::Tensor& x, int64_t groups) {
  const int64_t pixels = x.numel() / (x.size(0) * x.size(1));
  return {int(x.size(1) / groups), int(groups), pixels, (pixels + 4 * kCluster - 1) / (4 * kCluster) * 4};
}

bool aligned(const torch::Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % 16 == 0; }

// Calls `launch` with the packs of a warp that stay in registers (0: none do), and whether packs are whole.
template <class Launch>
void by_size(const Part& part, bool whole, Launch launch) {
  const auto with = [&](auto packs) {
    if (whole && part.pixels % 4 == 0) launch(packs, std::true_type());
    else launch(packs, std::false_type());
  };
  const int64_t packs = (part.share / 4 + kWarp - 1) / kWarp;
  if (part.channels > kMostWarps || packs > 4) with(std::integral_constant<int, 0>());
  else if (packs == 1) with(std::integral_constant<int, 1>());
  else if (packs == 2) with(std::integral_constant<int, 2>());
  else with(std::integral_constant<int, 4>());
}

dim3 block_of(const Part& part) { return dim3(kWarp, unsigned(std::min(part.channels, kMostWarps))); }

}  // namespace

// The output; mean and 1 / sqrt(var + eps) of each group.
std::tuple<torch::Tensor, torch::Tensor> norm_silu_forward(
    const torch::Tensor& x_, const torch::Tensor& weight, const torch::Tensor& bias, int64_t groups, double eps) {
  check(x_, "x", x_);
  check(weight, "weight", x_);
  check(bias, "bias", x_);
  TORCH_CHECK(x_.dim() >= 3 && x_.size(1) % groups == 0 && weight.numel() == x_.size(1), "groups of channels");
  const c10::cuda::CUDAGuard guard(x_.device());
  const auto x = x_.contiguous();
  auto y = torch::empty(x.sizes(), x.options());
  auto statistics = torch::empty({x.size(0) * groups, 2}, x.options());
  if (x.numel() == 0) return {y, statistics};
  const Part part = part_of(x, groups);
  by_size(part, aligned(x), [&](auto packs, auto whole) {
    norm_silu_forward_kernel<packs(), whole()>
        <<<unsigned(statistics.size(0) * kCluster), block_of(part), 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.const_data_ptr<float>(), weight.const_data_ptr<float>(), bias.const_data_ptr<float>(),
            y.mutable_data_ptr<float>(), statistics.mutable_data_ptr<float>(), part, float(eps));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, statistics};
}

// The gradient of x, and the gradients of weight and bias, the last dimension, for each channel.
std::tuple<torch::Tensor, torch::Tensor> norm_silu_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& x_, const torch::Tensor& weight, const torch::Tensor& bias,
    const torch::Tensor& statistics, int64_t groups) {
  check(grad_output_, "grad_output", x_);
  TORCH_CHECK(grad_output_.sizes() == x_.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(x_.device());
  const auto x = x_.contiguous(), grad_output = grad_output_.contiguous();
  auto grad_x = torch::empty(x.sizes(), x.options());
  auto sums = torch::empty({x.size(0), groups, kCluster, x.size(1) / groups, 2}, x.options());
  if (x.numel() == 0) return {grad_x, torch::zeros({x.size(1), 2}, x.options())};
  const Part part = part_of(x, groups);
  by_size(part, aligned(x) && aligned(grad_output), [&](auto packs, auto whole) {
    norm_silu_backward_kernel<packs(), whole()>
        <<<unsigned(statistics.size(0) * kCluster), block_of(part), 0, c10::cuda::getCurrentCUDAStream()>>>(
            grad_output.const_data_ptr<float>(), x.const_data_ptr<float>(), weight.const_data_ptr<float>(),
            bias.const_data_ptr<float>(), statistics.const_data_ptr<float>(), grad_x.mutable_data_ptr<float>(),
            sums.mutable_data_ptr<float>(), part);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {grad_x, sums.sum(at::IntArrayRef({0, 2})).reshape({x.size(1), 2})};
}
"""

kernels = load_inline(
    name="group_norm_silu",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["norm_silu_forward", "norm_silu_backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class GroupNormSilu(torch.autograd.Function):
    """silu(group_norm(x))"""

    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        weight, bias = weight.contiguous(), bias.contiguous()
        y, statistics = kernels.norm_silu_forward(x, weight, bias, groups, eps)
        ctx.save_for_backward(x, weight, bias, statistics)
        ctx.groups = groups
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        grad_x, sums = kernels.norm_silu_backward(grad_output, *ctx.saved_tensors, ctx.groups)
        grads = grad_x, *sums.t().contiguous().unbind(0)
        wanted = (grad if needed else None for grad, needed in zip(grads, ctx.needs_input_grad, strict=False))
        return *wanted, None, None


class ModelNew(nn.Module):
    def __init__(self, groups, channels, eps):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=eps)

    def forward(self, x):
        return GroupNormSilu.apply(x, self.norm.weight, self.norm.bias, self.norm.num_groups, self.norm.eps)
