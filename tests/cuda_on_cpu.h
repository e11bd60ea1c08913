// Runs CUDA kernels on the CPU: a block's threads are fibers that wait for each other at barriers and shuffles.
// Enough of CUDA for the solutions that tests/test_gpu_solutions.py names. Copies in the background are done at once.
#pragma once

#include <torch/extension.h>
#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#define __global__
#define __host__
#define __device__
#define __forceinline__
#define __launch_bounds__(...)
#define __shared__ static
#define C10_CUDA_KERNEL_LAUNCH_CHECK()

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct float2 { float x, y; };
struct double2 { double x, y; };
struct float4 { float x, y, z, w; };

inline dim3 threadIdx, blockIdx, blockDim, gridDim;
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
template <class T>
T __ldcs(const T* from) { return *from; }
template <class T>
void __stcs(T* to, T value) { *to = value; }
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) {}
using std::max, std::min;

namespace emulated {

constexpr int kWarp = 32;
constexpr size_t kStack = 65536;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  dim3 thread;
  bool done;
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline size_t current;
inline std::function<void()> kernel;
inline std::vector<float4> shared;

inline void pause() {
  const size_t self = current;
  swapcontext(&fibers[self].context, &scheduler);
}

// A barrier for the threads that have not returned.
struct Barrier {
  size_t members = 0, waiting = 0, generation = 0;

  void open() {
    waiting = 0;
    ++generation;
  }
  void wait() {
    const size_t before = generation;
    if (++waiting == members) open();
    while (generation == before) pause();
  }
  void leave() {
    if (--members > 0 && waiting == members) open();
  }
};

inline Barrier block;
inline std::vector<Barrier> warps;
inline std::vector<std::array<uint64_t, kWarp>> lanes;

template <class T>
T exchange(T value, int source) {
  const size_t warp = current / kWarp, lane = current % kWarp;
  std::memcpy(&lanes[warp][lane], &value, sizeof(T));
  warps[warp].wait();
  std::memcpy(&value, &lanes[warp][source >= 0 && source < kWarp ? source : lane], sizeof(T));
  warps[warp].wait();
  return value;
}

inline void run() {
  kernel();
  fibers[current].done = true;
  warps[current / kWarp].leave();
  block.leave();
  pause();
}

inline void run_block(size_t threads) {
  block = Barrier{threads};
  warps.assign((threads + kWarp - 1) / kWarp, Barrier{});
  lanes.resize(warps.size());
  for (size_t i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    ++warps[i / kWarp].members;
    fiber.done = false;
    fiber.thread = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y));
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    makecontext(&fiber.context, run, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (current = 0; current < threads; ++current) {
      if (fibers[current].done) continue;
      any = true;
      threadIdx = fibers[current].thread;
      swapcontext(&scheduler, &fibers[current].context);
    }
  }
}

template <class Kernel>
void launch(dim3 grid, dim3 threads, Kernel body) {
  gridDim = grid;
  blockDim = threads;
  kernel = body;
  const size_t count = size_t(threads.x) * threads.y * threads.z;
  if (fibers.size() < count) fibers.resize(count);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        run_block(count);
      }
    }
  }
}

}  // namespace emulated

inline void __syncthreads() { emulated::block.wait(); }
inline void __syncwarp() { emulated::warps[emulated::current / emulated::kWarp].wait(); }
inline int lane_of_thread() { return int(emulated::current % emulated::kWarp); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) { return emulated::exchange(value, lane); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) { return emulated::exchange(value, lane_of_thread() ^ mask); }
template <class T>
T __shfl_down_sync(unsigned, T value, int distance) { return emulated::exchange(value, lane_of_thread() + distance); }
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) { return emulated::exchange(value, lane_of_thread() - distance); }
inline int __reduce_add_sync(unsigned mask, int value) {
  for (int distance = 1; distance < emulated::kWarp; distance *= 2) value += __shfl_xor_sync(mask, value, distance);
  return value;
}
inline int atomicAdd(int* at, int value) { return std::exchange(*at, *at + value); }
inline int atomicSub(int* at, int value) { return std::exchange(*at, *at - value); }

namespace c10::cuda {
struct CUDAGuard {
  CUDAGuard(at::Device) {}
};
inline int getCurrentCUDAStream() { return 0; }
}  // namespace c10::cuda
