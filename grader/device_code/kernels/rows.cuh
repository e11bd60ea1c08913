#pragma once
#include <kernels/pointwise.cuh>

// Rows that stay in the registers of a block.
namespace rows {

using pointwise::kWarp;
using pointwise::Pack;
using pointwise::packs_of;

struct Sum {
  static constexpr float identity = 0.0f;
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Like torch.max, and unlike fmaxf, a NaN wins.
struct Max {
  static constexpr float identity = -INFINITY;
  __device__ float operator()(float a, float b) const { return a > b || isnan(a) ? a : b; }
};

// The reduction over a block, in every thread. Calls alternate between turn 0 and 1, so that one barrier is enough.
template <int THREADS, typename Operator>
__device__ __forceinline__ float reduce(float value, int turn, Operator combine) {
  __shared__ float warp_results[2][THREADS / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
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
