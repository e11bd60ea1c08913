#pragma once
#include <cstdint>

// Rows that bulk copies (sm_90) bring to shared memory, while the block computes earlier ones.
namespace bulk {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// The rows first, first + step, ... of TENSORS tensors of `rows` rows, STAGES of them under way. A null tensor is left
// out. The memory is the kernel's dynamic shared memory, of floats() floats; rows have a multiple of four of them.
template <int TENSORS, int STAGES>
class Ring {
 public:
  static constexpr int64_t floats(int64_t columns) { return STAGES * TENSORS * columns; }

  __device__ Ring(float* memory, const float* const (&tensors)[TENSORS], int columns, int64_t first, int64_t step,
                  int64_t rows)
      : memory_(memory), columns_(columns), next_(first), step_(step), rows_(rows) {
    __shared__ uint64_t arrived[STAGES];
    arrived_ = arrived;
#pragma unroll
    for (int t = 0; t < TENSORS; ++t) tensors_[t] = tensors[t];
    if (threadIdx.x == 0) {
#pragma unroll
      for (int s = 0; s < STAGES; ++s) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived_ + s)) : "memory");
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    for (int s = 0; s < STAGES; ++s) request(s);
  }

  // Waits for the next row, and returns where that of the first tensor begins; the others' follow, `columns` apart.
  __device__ __forceinline__ const float* wait() {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(arrived_ + stage_)),
        "r"(parity_)
        : "memory");
    return memory_ + int64_t(stage_) * TENSORS * columns_;
  }

  // Requests another row in the place of the present one. A barrier is behind all reads of that.
  __device__ __forceinline__ void advance() {
    request(stage_);
    if (++stage_ == STAGES) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  __device__ __forceinline__ void request(int stage) {
    if (threadIdx.x == 0 && next_ >= 0 && next_ < rows_) {
      const uint32_t bytes = columns_ * sizeof(float), barrier = shared_address(arrived_ + stage);
      int given = 0;
#pragma unroll
      for (int t = 0; t < TENSORS; ++t) given += tensors_[t] != nullptr;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(given * bytes)
                   : "memory");
#pragma unroll
      for (int t = 0; t < TENSORS; ++t) {
        if (tensors_[t] == nullptr) continue;
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_address(memory_ + (int64_t(stage) * TENSORS + t) * columns_)),
            "l"(tensors_[t] + next_ * columns_), "r"(bytes), "r"(barrier)
            : "memory");
      }
    }
    next_ += step_;
  }

  float* memory_;
  const float* tensors_[TENSORS];
  uint64_t* arrived_;
  const int columns_;
  int64_t next_;
  const int64_t step_, rows_;
  int stage_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace bulk
