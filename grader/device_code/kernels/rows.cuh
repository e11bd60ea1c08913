#pragma once
#include <kernels/pointwise.cuh>

#include <cstdint>
#include <type_traits>

// Rows that stay in the registers of a block.
namespace rows {

using pointwise::kWarp;
using pointwise::Pack;
using pointwise::packs_of;

struct Sum {
  static constexpr float identity = 0.0f;
  __device__ float operator()(float a, float b) const { return a + b; }
  __device__ float2 operator()(float2 a, float2 b) const { return {a.x + b.x, a.y + b.y}; }
};

// Like torch.max, and unlike fmaxf, a NaN wins.
struct Max {
  static constexpr float identity = -INFINITY;
  __device__ float operator()(float a, float b) const { return a > b || isnan(a) ? a : b; }
};

__device__ __forceinline__ float of_lane(float value, int distance) {
  return __shfl_xor_sync(0xffffffffu, value, distance);
}
__device__ __forceinline__ float2 of_lane(float2 value, int distance) {
  return {of_lane(value.x, distance), of_lane(value.y, distance)};
}

// The reduction over a block, in every thread. Calls alternate between turn 0 and 1, so that one barrier is enough.
template <int THREADS, typename Value, typename Operator>
__device__ __forceinline__ Value reduce(Value value, int turn, Operator combine) {
  __shared__ Value warp_results[2][THREADS / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = combine(value, of_lane(value, offset));
  if (threadIdx.x % kWarp == 0) warp_results[turn][threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warp_results[turn][0];
#pragma unroll
  for (int warp = 1; warp < THREADS / kWarp; ++warp) value = combine(value, warp_results[turn][warp]);
  return value;
}

// A thread's share of a row: PACKS packs, THREADS packs apart. Packs past the end are zeros.
template <int WIDTH, int PACKS, int THREADS>
struct Share {
  static constexpr int kWidth = WIDTH;
  Pack<WIDTH> pack[PACKS];

  // Calls `call` with each element, and with where it is: pack[p].value[k].
  template <typename Call>
  __device__ __forceinline__ void each(Call call) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) call(pack[p].value[k], p, k);
    }
  }
  __device__ __forceinline__ void load(const float* row, int packs) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int i = threadIdx.x + p * THREADS;
      pack[p] = i < packs ? packs_of<WIDTH>(row)[i] : Pack<WIDTH>{};
    }
  }
  __device__ __forceinline__ void load_once(const float* row, int packs) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int i = threadIdx.x + p * THREADS;
      pack[p] = i < packs ? pointwise::read_once(packs_of<WIDTH>(row) + i) : Pack<WIDTH>{};
    }
  }
  __device__ __forceinline__ void store(float* row, int packs) const {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int i = threadIdx.x + p * THREADS;
      if (i < packs) packs_of<WIDTH>(row)[i] = pack[p];
    }
  }
  __device__ __forceinline__ void store_once(float* row, int packs) const {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int i = threadIdx.x + p * THREADS;
      if (i < packs) pointwise::write_once(packs_of<WIDTH>(row) + i, pack[p]);
    }
  }
};

// Columns of the longest row that fits into the registers of a block.
constexpr int64_t longest(bool vectorized) { return vectorized ? 16384 : 8192; }

// Calls `call` with a block's share of a row of up to longest() columns, and with its threads.
template <typename Call>
void for_row(int64_t columns, bool vectorized, Call call) {
  if (vectorized) return call(Share<4, 4, 1024>(), std::integral_constant<int, 1024>());
  if (columns <= 1024) return call(Share<1, 4, 256>(), std::integral_constant<int, 256>());
  call(Share<1, 8, 1024>(), std::integral_constant<int, 1024>());
}

constexpr int kSummed = 32;  // columns of a block that sums over rows

// The sums over few rows of packs of four, in a fixed order: a thread for a pack of each kLanes-th row.
__global__ void __launch_bounds__(pointwise::kThreads) sum_kernel(
    const float* __restrict__ values, float* __restrict__ sums, int rows, int columns) {
  constexpr int kPacks = kSummed / 4, kLanes = pointwise::kThreads / kPacks;
  __shared__ Pack<4> parts[kLanes][kPacks];
  const int own = threadIdx.x % kPacks, lane = threadIdx.x / kPacks, pack = blockIdx.x * kPacks + own;
  Pack<4> sum{};
#pragma unroll 8
  for (int row = lane; row < rows && pack < columns / 4; row += kLanes) {
    const Pack<4> part = packs_of<4>(values + int64_t(row) * columns)[pack];
    for (int k = 0; k < 4; ++k) sum.value[k] += part.value[k];
  }
  parts[lane][own] = sum;
  __syncthreads();
  if (lane != 0 || pack >= columns / 4) return;
  for (int other = 1; other < kLanes; ++other) {
    for (int k = 0; k < 4; ++k) sum.value[k] += parts[other][own].value[k];
  }
  packs_of<4>(sums)[pack] = sum;
}

}  // namespace rows
