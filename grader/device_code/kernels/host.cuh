#pragma once
// What a solution's host code needs: checks of tensors and launches. Include it after <torch/types.h>.
#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>

namespace host {

constexpr int kMultiprocessors = 132;  // of an H200

inline void check(const torch::Tensor& tensor, const char* name, const torch::Tensor& like,
                  torch::ScalarType type = torch::kFloat32) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == like.device(), name, " must be on ", like.device());
  TORCH_CHECK(tensor.scalar_type() == type, name, " must be ", type, ", is ", tensor.scalar_type());
}

// Whether PyTorch's flags allow a convolution to round its operands to TensorFloat-32.
inline bool allows_tensor_float() { return at::globalContext().allowTF32CuDNN(); }

// Tensors from a caller may start anywhere, those that PyTorch allocates are aligned.
inline bool starts_on_float4(const torch::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

inline unsigned blocks_of(int64_t size, int64_t share) { return static_cast<unsigned>((size + share - 1) / share); }

inline float2* pairs(const torch::Tensor& tensor) {
  return reinterpret_cast<float2*>(tensor.mutable_data_ptr<float>());
}

template <typename Kernel, typename... Arguments>
void launch(Kernel kernel, dim3 blocks, int threads, int64_t shared_floats, Arguments... arguments) {
  const int bytes = int(shared_floats * sizeof(float));
  if (bytes > 32 << 10) {  // without it, a kernel's static shared memory and this have 48 KB together
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  }
  kernel<<<blocks, threads, bytes, c10::cuda::getCurrentCUDAStream()>>>(arguments...);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace host
