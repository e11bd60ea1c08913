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
  Pack<WIDTH> pack[PACKS];

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

}  // namespace rows
