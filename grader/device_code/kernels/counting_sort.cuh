#pragma once
// Where each of a few values appears among many: a counting sort in three small kernels.
#include <kernels/host.cuh>

#include <tuple>

namespace sorting {

constexpr int kThreads = 256, kWarp = 32, kScan = 1024;

// ranks[i]: how many of i's value were counted before it. Their order differs from run to run.
__global__ void count_kernel(
    const int64_t* __restrict__ values, int* __restrict__ counts, int* __restrict__ ranks, int size, int64_t bound) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  CUDA_KERNEL_ASSERT(values[i] >= 0 && values[i] < bound);
  ranks[i] = atomicAdd(counts + values[i], 1);
}

// first[v] = counts[0] + ... + counts[v - 1]. A block adds up all that lies before its kScan counts, then scans these.
__global__ void __launch_bounds__(kScan) scan_kernel(
    const int* __restrict__ counts, int* __restrict__ first, int size) {
  __shared__ int warp_sums[kScan / kWarp];
  const int start = blockIdx.x * kScan, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int before = 0;
  for (int i = threadIdx.x; i < start; i += kScan) before += counts[i];
  before = __reduce_add_sync(0xffffffffu, before);
  if (lane == 0) warp_sums[warp] = before;
  __syncthreads();
  int base = __reduce_add_sync(0xffffffffu, warp_sums[lane]);
  __syncthreads();

  const int i = start + threadIdx.x, own = i < size ? counts[i] : 0;
  int sum = own;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int left = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += left;
  }
  if (lane == kWarp - 1) warp_sums[warp] = sum;
  __syncthreads();
  base += __reduce_add_sync(0xffffffffu, lane < warp ? warp_sums[lane] : 0);
  if (i <= size) first[i] = base + sum - own;
}

__global__ void place_kernel(
    const int64_t* __restrict__ values, const int* __restrict__ first, const int* __restrict__ ranks,
    int* __restrict__ places, int size) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < size) places[first[values[i]] + ranks[i]] = i;
}

// For values from 0 to bound - 1: v appears at places[first[v]] to places[first[v + 1] - 1], in any order.
inline std::tuple<torch::Tensor, torch::Tensor> places_of(const torch::Tensor& values, int64_t bound) {
  TORCH_CHECK(values.numel() < (int64_t(1) << 31) && bound < (int64_t(1) << 31), "too many values to sort");
  const int size = int(values.numel()), rows = int(bound);
  const auto options = values.options().dtype(torch::kInt32);
  auto counts = torch::zeros({rows}, options), first = torch::empty({rows + 1}, options);
  auto places = torch::empty({size}, options), ranks = torch::empty({size}, options);
  const auto* const data = values.const_data_ptr<int64_t>();
  const dim3 blocks = host::blocks_of(size, kThreads);
  if (size > 0) {
    host::launch(count_kernel, blocks, kThreads, 0, data, counts.mutable_data_ptr<int>(),
                 ranks.mutable_data_ptr<int>(), size, bound);
  }
  host::launch(scan_kernel, host::blocks_of(rows + 1, kScan), kScan, 0,
               static_cast<const int*>(counts.const_data_ptr<int>()), first.mutable_data_ptr<int>(), rows);
  if (size > 0) {
    host::launch(place_kernel, blocks, kThreads, 0, data, static_cast<const int*>(first.const_data_ptr<int>()),
                 static_cast<const int*>(ranks.const_data_ptr<int>()), places.mutable_data_ptr<int>(), size);
  }
  return {first, places};
}

}  // namespace sorting
