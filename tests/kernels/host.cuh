#pragma once
// In place of the GPU's: three multiprocessors, so that blocks that take turns have several even of small sizes.
#include "../cuda_on_cpu.h"

namespace host {

constexpr int kMultiprocessors = 3;

inline void check(const at::Tensor& tensor, const char* name, const at::Tensor&, at::ScalarType type = at::kFloat) {
  TORCH_CHECK(tensor.scalar_type() == type, name);
}
inline bool starts_on_float4(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}
inline unsigned blocks_of(int64_t size, int64_t share) { return unsigned((size + share - 1) / share); }
inline float2* pairs(const at::Tensor& tensor) { return reinterpret_cast<float2*>(tensor.mutable_data_ptr<float>()); }

template <class Kernel, class... Arguments>
void launch(Kernel kernel, dim3 blocks, int threads, int64_t shared_floats, Arguments... arguments) {
  emulated::shared.assign((shared_floats + 3) / 4, {});
  emulated::launch(blocks, threads, [&] { kernel(arguments...); });
}

}  // namespace host
