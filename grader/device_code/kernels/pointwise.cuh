#pragma once
#include <cstdint>

// What kernels share that take a tensor element by element: vectors of floats and sums over a block.
namespace pointwise {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kPacksPerThread = 4;

template <int WIDTH>
struct alignas(WIDTH * sizeof(float)) Pack {
  float value[WIDTH];
};

template <int WIDTH>
__device__ __forceinline__ const Pack<WIDTH>* packs_of(const float* values) {
  return reinterpret_cast<const Pack<WIDTH>*>(values);
}

template <int WIDTH>
__device__ __forceinline__ Pack<WIDTH>* packs_of(float* values) {
  return reinterpret_cast<Pack<WIDTH>*>(values);
}

// Reads and writes of what is not needed again soon: the L2 cache gives these lines up first.
template <int WIDTH>
__device__ __forceinline__ Pack<WIDTH> read_once(const Pack<WIDTH>* from) {
  if constexpr (WIDTH == 4) {
    const float4 value = __ldcs(reinterpret_cast<const float4*>(from));
    return {{value.x, value.y, value.z, value.w}};
  } else {
    return *from;
  }
}

template <int WIDTH>
__device__ __forceinline__ void write_once(Pack<WIDTH>* to, const Pack<WIDTH>& pack) {
  if constexpr (WIDTH == 4) {
    const auto& value = pack.value;
    __stcs(reinterpret_cast<float4*>(to), make_float4(value[0], value[1], value[2], value[3]));
  } else {
    *to = pack;
  }
}

__device__ __forceinline__ float leaky(float x, float slope) { return x > 0.0f ? x : x * slope; }
__device__ __forceinline__ float leaky_derivative(float x, float slope) { return x > 0.0f ? 1.0f : slope; }

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

// Two sums over a block of kThreads, in thread 0.
__device__ __forceinline__ float2 block_sum(float2 value) {
  __shared__ float2 warp_sums[kThreads / kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return {};
  return warp_sum(threadIdx.x < kThreads / kWarp ? warp_sums[threadIdx.x] : float2{});
}

// The two sums of a channel in float64, in lane 0 of a warp, from one pair a block of its planes: in a fixed order.
__device__ __forceinline__ double2 channel_sums(
    const float2* partial_sums, int channel, int channels, int samples, int blocks) {
  double2 sums{};
  for (int i = threadIdx.x; i < samples * blocks; i += kWarp) {
    const float2 part = partial_sums[(int64_t(i / blocks) * channels + channel) * blocks + i % blocks];
    sums.x += part.x;
    sums.y += part.y;
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    sums.x += __shfl_down_sync(0xffffffffu, sums.x, offset);
    sums.y += __shfl_down_sync(0xffffffffu, sums.y, offset);
  }
  return sums;
}

// A grid whose x is the (sample, channel) plane, and whose y shares out the plane's packs.
inline dim3 plane_grid(int64_t planes, int64_t packs) {
  const int64_t share = kThreads * kPacksPerThread, blocks = (packs + share - 1) / share;
  return dim3(static_cast<unsigned>(planes), static_cast<unsigned>(blocks < 1 ? 1 : blocks > 65535 ? 65535 : blocks));
}

// A thread's first element of its plane, and the distance to the next, with that grid.
__device__ __forceinline__ int64_t first_of_plane() { return int64_t(blockIdx.y) * kThreads + threadIdx.x; }
__device__ __forceinline__ int64_t stride_in_plane() { return int64_t(gridDim.y) * kThreads; }

}  // namespace pointwise
