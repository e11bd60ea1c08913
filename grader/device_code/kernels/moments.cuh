#pragma once
#include <kernels/pointwise.cuh>

// Mean and variance of a channel from parts of it, which lose no digits where the mean is far from zero.
namespace moments {

using pointwise::kThreads;
using pointwise::kWarp;

// `count` values, their mean, and the sum of their squared distances from it.
struct alignas(16) Record {
  float count, mean, squares, unused;
};

struct Moments {
  double count, mean, squares;
};

// From the sums of (v - k) and (v - k)^2 over `count` values; k is best one of them.
__device__ __forceinline__ Record record_of(int count, float k, float sum, float square_sum) {
  if (count == 0) return {};
  const float distance = sum / float(count);
  return {float(count), k + distance, square_sum - sum * distance, 0.0f};
}

// Records of a tensor's planes, [sample][block][channel]: blockIdx.x is the plane, whose packs blockIdx.y shares out.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) planes_kernel(
    const float* __restrict__ values, Record* __restrict__ records, int64_t plane_size, int channels) {
  const int64_t plane = blockIdx.x, packs = plane_size / WIDTH, stride = pointwise::stride_in_plane();
  const auto* v = pointwise::packs_of<WIDTH>(values + plane * plane_size);
  const float k = v[0].value[0];
  float2 sums{};
  for (int64_t i = pointwise::first_of_plane(); i < packs; i += stride) {
    const auto pack = v[i];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const float distance = pack.value[j] - k;
      sums.x += distance;
      sums.y += distance * distance;
    }
  }
  sums = pointwise::block_sum(sums);
  if (threadIdx.x != 0) return;
  int64_t count = 0;
  for (int64_t i = int64_t(blockIdx.y) * kThreads; i < packs; i += stride) count += min(int64_t(kThreads), packs - i);
  const int64_t at = (plane / channels * gridDim.y + blockIdx.y) * channels + plane % channels;
  records[at] = record_of(int(count * WIDTH), k, sums.x, sums.y);
}

__device__ __forceinline__ double over_warp(double value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// What `many` records, [record][channel], say of a channel: for a warp, in a fixed order.
__device__ inline Moments of_channel(const Record* records, int channel, int channels, int many) {
  double count = 0.0, sum = 0.0, squares = 0.0;
  for (int i = threadIdx.x % kWarp; i < many; i += kWarp) {
    const Record record = records[int64_t(i) * channels + channel];
    count += record.count;
    sum += double(record.count) * record.mean;
  }
  count = over_warp(count);
  const double mean = over_warp(sum) / count;
  for (int i = threadIdx.x % kWarp; i < many; i += kWarp) {
    const Record record = records[int64_t(i) * channels + channel];
    const double distance = record.mean - mean;
    squares += record.squares + record.count * distance * distance;
  }
  squares = over_warp(squares);
  return {count, mean, squares < 0.0 ? 0.0 : squares};  // a NaN stays one
}

}  // namespace moments
