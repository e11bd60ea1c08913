"""Scale -> mask -> softmax in one CUDA kernel forward and one backward, a warp for each row of up to 2048 keys.

Fused: everything. A lane keeps its share of the row in registers, so that each element is read once. Four masked
elements that lie together are not read at all: more than half of the scores, and of grad_output and output in the
backward, never leave memory. A compiler of the reference reads them, as the mask is data.

Bytes at full size, with S = 268 MB for one tensor of scores and u = 0.4 for the share that is not masked:

              eager                                                 here
    forward    6 S  (scale 2, mask 2, softmax 2)                    (1 + u) S
    backward   7 S  (softmax 3, mask 2, scale 2)                    (1 + 2 u) S
    kept       1 S  (the output)                                    1 S  (the output)

The mask, a byte for each element of one head, is read by all heads of its sample, mostly from the L2 cache.

Why the backward is right: for a row with probabilities p, dL/dz_j = p_j * (g_j - sum(g * p)) with z = scale * score,
hence

    dL/dscore_j = scale * p_j * (g_j - sum(g * p)), and 0 where masked, for p_j = 0 there.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor softmax_forward(const torch::Tensor& scores, const torch::Tensor& masked, double scale);

torch::Tensor softmax_backward(
    const torch::Tensor& grad_output, const torch::Tensor& output, const torch::Tensor& masked, double scale);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cmath>
#include <cstdint>

namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;

struct Add {
  static __device__ float join(float a, float b) { return a + b; }
};

struct Larger {
  static __device__ float join(float a, float b) { return fmaxf(a, b); }
};

// Of all lanes, in every lane.
template <class Operation>
__device__ float over_warp(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = Operation::join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// The row of this warp: query, head and sample are told by the block's place, which takes no division.
struct Rows {
  int64_t queries, columns;

  __device__ int64_t query() const { return int64_t(blockIdx.x) * kWarps + threadIdx.y; }
  __device__ int64_t start() const {
    return ((int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * queries + query()) * columns;
  }
  // The heads of a sample share one mask.
  __device__ int64_t mask_start() const { return (int64_t(blockIdx.z) * queries + query()) * columns; }
};

// Four neighbouring elements of a row, or as many as there are; not read where masked.
template <bool kAligned>
__device__ void load4(const float* row, unsigned hidden, int64_t column, float fill, float* to) {
  if constexpr (kAligned) {
    if (hidden == 0x01010101u) {
      for (int i = 0; i < 4; ++i) to[i] = fill;
      return;
    }
    const float4 pack = *reinterpret_cast<const float4*>(row + column);
    const float values[4] = {pack.x, pack.y, pack.z, pack.w};
    for (int i = 0; i < 4; ++i) to[i] = hidden >> (8 * i) & 1 ? fill : values[i];
  } else {
    for (int i = 0; i < 4; ++i) to[i] = hidden >> (8 * i) & 1 ? fill : row[column + i];
  }
}

// The mask's four bytes; elements past the end count as masked.
template <bool kAligned>
__device__ unsigned load_mask(const uint8_t* mask, int64_t column, int64_t columns) {
  if constexpr (kAligned) {
    return column < columns ? *reinterpret_cast<const unsigned*>(mask + column) : 0x01010101u;
  } else {
    unsigned bytes = 0;
    for (int i = 0; i < 4; ++i) bytes |= unsigned(column + i >= columns || mask[column + i]) << (8 * i);
    return bytes;
  }
}

template <bool kAligned>
__device__ void store4(float* row, int64_t column, int64_t columns, const float* from) {
  if constexpr (kAligned) {
    if (column < columns) *reinterpret_cast<float4*>(row + column) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    for (int i = 0; i < 4; ++i) {
      if (column + i < columns) row[column + i] = from[i];
    }
  }
}

__device__ int64_t column_of(int pack) { return (int64_t(pack) * kWarp + threadIdx.x) * 4; }

template <int kPacks, bool kAligned>
__global__ void softmax_forward_kernel(
    const float* scores, const uint8_t* masked, float* output, Rows rows, float scale) {
  if (rows.query() >= rows.queries) return;
  const uint8_t* const mask = masked + rows.mask_start();
  const int64_t columns = rows.columns;
  float z[kPacks][4];
  unsigned hidden[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) hidden[k] = load_mask<kAligned>(mask, column_of(k), columns);
  float peak = -INFINITY;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    load4<kAligned>(scores + rows.start(), hidden[k], column_of(k), -INFINITY, z[k]);
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    for (int i = 0; i < 4; ++i) {
      z[k][i] = hidden[k] >> (8 * i) & 1 ? -INFINITY : z[k][i] * scale;
      peak = fmaxf(peak, z[k][i]);
    }
  }
  peak = over_warp<Larger>(peak);
  float total = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    for (int i = 0; i < 4; ++i) total += z[k][i] = __expf(z[k][i] - peak);
  }
  const float inverse = 1 / over_warp<Add>(total);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    for (int i = 0; i < 4; ++i) z[k][i] *= inverse;
    store4<kAligned>(output + rows.start(), column_of(k), columns, z[k]);
  }
}

template <int kPacks, bool kAligned>
__global__ void softmax_backward_kernel(
    const float* grad_output, const float* output, const uint8_t* masked, float* grad_scores, Rows rows, float scale) {
  if (rows.query() >= rows.queries) return;
  const uint8_t* const mask = masked + rows.mask_start();
  const int64_t columns = rows.columns;
  float g[kPacks][4], p[kPacks][4];
  unsigned hidden[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) hidden[k] = load_mask<kAligned>(mask, column_of(k), columns);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    load4<kAligned>(grad_output + rows.start(), hidden[k], column_of(k), 0, g[k]);
    load4<kAligned>(output + rows.start(), hidden[k], column_of(k), 0, p[k]);
  }
  float product = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    for (int i = 0; i < 4; ++i) product += g[k][i] * p[k][i];
  }
  product = over_warp<Add>(product);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    for (int i = 0; i < 4; ++i) g[k][i] = scale * p[k][i] * (g[k][i] - product);
    store4<kAligned>(grad_scores + rows.start(), column_of(k), columns, g[k]);
  }
}

void check(const torch::Tensor& tensor, const char* name, const torch::Tensor& mask) {
  TORCH_CHECK(tensor.is_cuda(), name, " must be on the GPU, is on ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, name, " must be float32, is ", tensor.scalar_type());
  TORCH_CHECK(mask.scalar_type() == torch::kBool && mask.device() == tensor.device(), "masked must be bool there");
  TORCH_CHECK(tensor.dim() == 4 && mask.dim() == 4, name, " and masked must have 4 dimensions");
  TORCH_CHECK(
      mask.size(0) == tensor.size(0) && mask.size(1) == 1 && mask.size(2) == tensor.size(2) &&
          mask.size(3) == tensor.size(3),
      "masked must have one head of ", name, "'s shape");
  TORCH_CHECK(tensor.size(3) <= 2048, "rows must have at most 2048 elements, have ", tensor.size(3));
}

bool on(const torch::Tensor& tensor, int bytes) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % bytes == 0;
}

// Calls `launch` with the number of packs that a lane needs for a row, and whether rows can be read in packs.
template <class Launch>
void by_size(int64_t columns, bool aligned, Launch launch) {
  const auto with = [&](auto packs) {
    if (aligned) launch(packs, std::true_type());
    else launch(packs, std::false_type());
  };
  if (columns <= 128) with(std::integral_constant<int, 1>());
  else if (columns <= 256) with(std::integral_constant<int, 2>());
  else if (columns <= 512) with(std::integral_constant<int, 4>());
  else if (columns <= 1024) with(std::integral_constant<int, 8>());
  else with(std::integral_constant<int, 16>());
}

const dim3 kBlock(kWarp, kWarps);

dim3 grid(const torch::Tensor& scores) {
  return dim3(unsigned((scores.size(2) + kWarps - 1) / kWarps), unsigned(scores.size(1)), unsigned(scores.size(0)));
}

}  // namespace

torch::Tensor softmax_forward(const torch::Tensor& scores_, const torch::Tensor& masked_, double scale) {
  check(scores_, "scores", masked_);
  const c10::cuda::CUDAGuard guard(scores_.device());
  const auto scores = scores_.contiguous(), masked = masked_.contiguous();
  auto output = torch::empty(scores.sizes(), scores.options());
  if (output.numel() == 0) return output;
  const Rows rows{scores.size(2), scores.size(3)};
  const bool aligned = rows.columns % 4 == 0 && on(scores, 16) && on(masked, 4);
  by_size(rows.columns, aligned, [&](auto packs, auto in_packs) {
    softmax_forward_kernel<packs(), in_packs()><<<grid(scores), kBlock, 0, c10::cuda::getCurrentCUDAStream()>>>(
        scores.const_data_ptr<float>(), reinterpret_cast<const uint8_t*>(masked.const_data_ptr<bool>()),
        output.mutable_data_ptr<float>(), rows, float(scale));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

torch::Tensor softmax_backward(
    const torch::Tensor& grad_output_, const torch::Tensor& output, const torch::Tensor& masked_, double scale) {
  check(grad_output_, "grad_output", masked_);
  TORCH_CHECK(grad_output_.sizes() == output.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(output.device());
  const auto grad_output = grad_output_.contiguous(), masked = masked_.contiguous();
  auto grad_scores = torch::empty(output.sizes(), output.options());
  if (output.numel() == 0) return grad_scores;
  const Rows rows{output.size(2), output.size(3)};
  const bool aligned = rows.columns % 4 == 0 && on(grad_output, 16) && on(output, 16) && on(masked, 4);
  by_size(rows.columns, aligned, [&](auto packs, auto in_packs) {
    softmax_backward_kernel<packs(), in_packs()><<<grid(output), kBlock, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad_output.const_data_ptr<float>(), output.const_data_ptr<float>(),
        reinterpret_cast<const uint8_t*>(masked.const_data_ptr<bool>()), grad_scores.mutable_data_ptr<float>(), rows,
        float(scale));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_scores;
}
"""

kernels = load_inline(
    name="scaled_masked_softmax",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["softmax_forward", "softmax_backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class ScaledMaskedSoftmax(torch.autograd.Function):
    """softmax over the keys of scale * scores, with probability 0 where masked"""

    @staticmethod
    def forward(ctx, scores, masked, scale):
        output = kernels.softmax_forward(scores, masked, scale)
        ctx.save_for_backward(output, masked)
        ctx.scale = scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        output, masked = ctx.saved_tensors
        return kernels.softmax_backward(grad_output, output, masked, ctx.scale), None, None


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, scores, masked):
        return ScaledMaskedSoftmax.apply(scores, masked, self.scale)
