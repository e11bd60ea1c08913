#pragma once
#include <kernels/pointwise.cuh>

// Sums of looked-up rows by one warp, and which bags looked a row up, recorded as the lookups are made.
namespace lookups {

using pointwise::kWarp;
using pointwise::Pack;
using pointwise::packs_of;

constexpr unsigned kAll = 0xffffffffu;
constexpr int kFound = kWarp;  // bags that are recorded of a token: `found` has a row of so many for each token

// Two packs of columns of a lane, a warp's width apart.
template <int WIDTH>
struct Columns {
  Pack<WIDTH> sums[2]{};

  __device__ __forceinline__ void add(const float* row, int i, int packs) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (i + half * kWarp >= packs) continue;
      const auto pack = packs_of<WIDTH>(row)[i + half * kWarp];
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) sums[half].value[k] += pack.value[k];
    }
  }
  __device__ __forceinline__ void store(float* row, int i, int packs, int divisor) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (i + half * kWarp >= packs) continue;
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) sums[half].value[k] /= divisor;
      packs_of<WIDTH>(row)[i + half * kWarp] = sums[half];
    }
  }
};

// Calls add(bag) for each place of the token, in the order of bags. A warp's lanes hold the recorded bags and give up
// the first of them, again and again. A token with more places than that is looked for among all `size` tokens.
template <typename Add>
__device__ __forceinline__ void for_each_bag(
    int64_t token, int count, const int* found, const int64_t* tokens, int64_t size, int tokens_per_bag, Add add) {
  constexpr int kNone = 0x7fffffff, kAhead = 8;
  const int lane = threadIdx.x % kWarp;
  if (count <= kFound) {
    int held = lane < count ? found[token * kFound + lane] : kNone;
#pragma unroll 4
    for (int a = 0; a < count; ++a) {
      const int bag = __reduce_min_sync(kAll, held);
      if (lane == __ffs(__ballot_sync(kAll, held == bag)) - 1) held = kNone;
      add(bag);
    }
    return;
  }
  for (int64_t start = 0; start < size; start += kAhead * kWarp) {
    bool here[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t place = start + k * kWarp + lane;
      here[k] = place < size && tokens[place] == token;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      for (unsigned lanes = __ballot_sync(kAll, here[k]); lanes; lanes &= lanes - 1) {
        add((start + k * kWarp + __ffs(lanes) - 1) / tokens_per_bag);
      }
    }
  }
}

}  // namespace lookups
