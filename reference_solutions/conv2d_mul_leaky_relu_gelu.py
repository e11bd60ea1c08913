"""A 3x3 convolution on tensor cores, with x multiplier -> LeakyReLU(0.01) -> exact GELU where its sums are made.

Fused: everything forward. Backward, one pass makes dL/dc and two sums; two products of dL/dc follow. The convolution is
an implicit matrix product: rows are pixels, columns output channels, and the sum runs over input channels and taps. The
layout never changes: x goes from NCHW rows in shared memory to registers, where a product's left matrix may lie in any
order; the weights, its right matrix, are arranged once a call. For the weight's gradient the sum runs over pixels, and
both matrices come from NCHW rows. cuDNN's fast products want NHWC: copies of x, dL/dc and both results.

For other sizes, and where PyTorch's flags forbid TensorFloat-32, cuDNN convolves and one kernel does the rest.

Bytes and operations at full size, with C = 1.06 GB for the convolved tensor, as large as x:

              eager                                    here
    forward    8 C  (convolution 2, three passes 6)    3 C  (x, c, output)
    backward  16 C  (passes 12, two products 4)        7 C  (one pass 3, two products 4)
    kept       3 C                                     1 C
    FLOPs     3 * 305 G                                3 * 305 G

Why the backward is right: with z = c * m, a = leaky(z), y = gelu(a) and g for dL/dy,

    dL/dz = g * gelu'(a) * leaky'(z)        dL/dc = dL/dz * m        dL/dm = sum of dL/dz * c
    gelu'(a) = Phi(a) + a * phi(a)          leaky'(0) = slope, as in PyTorch

and all of it follows from c, m and g: c is kept, z and a are made again in registers. With w for the weights,

    dL/dx[i, p] = sum over o and taps t of w[o, i, t] * dL/dc[o, p - t]        a convolution with w turned around
    dL/dw[o, i, t] = sum over pixels p of dL/dc[o, p] * x[i, p + t]            dL/dbias = sum of dL/dc

Blocks write partial sums; fixed-order sums over those make the gradients the same in every run.
On an H100: forward 1.83 ms (167 TFLOP/s; 2.54 if c is kept, where the epilogue's stores wait), dL/dx 1.64 ms
(186 TFLOP/s), dL/dw 2.38 ms on an H200 (128 TFLOP/s, `mma.sync`, whose TensorFloat-32 rate ends there). cuDNN's NHWC
products take 1.33, 1.41 and 2.84 ms, and copies between the layouts 4.7 ms more.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor> forward(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const torch::Tensor& multiplier,
    double slope, bool keep_convolved);

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor> backward(
    const torch::Tensor& grad_output, const torch::Tensor& x, const torch::Tensor& weight,
    const torch::Tensor& convolved, const torch::Tensor& multiplier, double slope, bool want_x, bool want_weight);
"""

CUDA_SOURCE = r"""
#include <tuple>

#include <kernels/convolutions.cuh>
#include <kernels/pointwise.cuh>

namespace {

using namespace host;
using namespace pointwise;
using tensor_cores::Images;

constexpr float kSqrtHalf = 0.70710678118654752440f;
constexpr float kInverseSqrtTwoPi = 0.39894228040143267794f;

__device__ __forceinline__ float normal_cdf(float x) { return 0.5f * (1.0f + erff(x * kSqrtHalf)); }
__device__ __forceinline__ float normal_pdf(float x) { return kInverseSqrtTwoPi * expf(-0.5f * x * x); }

__device__ __forceinline__ float gelu(float x) { return x * normal_cdf(x); }
__device__ __forceinline__ float gelu_derivative(float x) { return normal_cdf(x) + x * normal_pdf(x); }

// Takes the convolution's sums where they are made: adds the bias, writes c if it is kept, and writes the output.
struct ScaledGelu {
  const float *bias, *multiplier;
  float *convolved, *output;
  int height, width;
  float slope;

  __device__ void operator()(int sample, int channel, int y, int x, float first, float second) const {
    const int64_t at = ((int64_t(sample) * 64 + channel) * height + y) * width + x;
    const float scale = multiplier[channel];
    const float2 c = make_float2(first + bias[channel], second + bias[channel]);
    if (convolved != nullptr) __stcs(reinterpret_cast<float2*>(convolved + at), c);
    __stcs(reinterpret_cast<float2*>(output + at),
           make_float2(gelu(leaky(c.x * scale, slope)), gelu(leaky(c.y * scale, slope))));
  }
};

// blockIdx.x is the (sample, channel) plane; blockIdx.y shares out its packs.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) scaled_gelu_forward_kernel(
    const float* __restrict__ convolved, const float* __restrict__ multiplier, float* __restrict__ output,
    int64_t plane_size, int channels, float slope) {
  const int64_t plane = blockIdx.x;
  const float scale = multiplier[plane % channels];
  const auto* c = packs_of<WIDTH>(convolved + plane * plane_size);
  auto* y = packs_of<WIDTH>(output + plane * plane_size);

  for (int64_t i = first_of_plane(); i < plane_size / WIDTH; i += stride_in_plane()) {
    Pack<WIDTH> pack = c[i];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) pack.value[k] = gelu(leaky(pack.value[k] * scale, slope));
    y[i] = pack;
  }
}

// dL/dc, rounded if tensor cores read it next, and a block's sums of dL/dz * c and of dL/dc.
template <int WIDTH>
__global__ void __launch_bounds__(kThreads) scaled_gelu_backward_kernel(
    const float* __restrict__ grad_output, const float* __restrict__ convolved, const float* __restrict__ multiplier,
    float* __restrict__ grad_convolved, float2* __restrict__ partial_sums, int64_t plane_size, int channels,
    float slope, bool round) {
  const int64_t plane = blockIdx.x;
  const float scale = multiplier[plane % channels];
  const auto* g = packs_of<WIDTH>(grad_output + plane * plane_size);
  const auto* c = packs_of<WIDTH>(convolved + plane * plane_size);
  auto* grad_c = packs_of<WIDTH>(grad_convolved + plane * plane_size);

  float2 sums{};
  for (int64_t i = first_of_plane(); i < plane_size / WIDTH; i += stride_in_plane()) {
    Pack<WIDTH> grad = read_once(g + i);
    const Pack<WIDTH> input = read_once(c + i);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      const float z = input.value[k] * scale;
      const float grad_z = grad.value[k] * gelu_derivative(leaky(z, slope)) * leaky_derivative(z, slope);
      grad.value[k] = grad_z * scale;
      sums.x += grad_z * input.value[k];
      sums.y += grad.value[k];
      if (round) grad.value[k] = __uint_as_float(tensor_cores::rounded(grad.value[k]));
    }
    write_once(grad_c + i, grad);
  }
  sums = block_sum(sums);
  if (threadIdx.x == 0) partial_sums[plane * gridDim.y + blockIdx.y] = sums;
}

// The tensor cores' kernels are made for 64 channels and rows that start on 16 bytes (x) and 8 bytes (output).
bool fits_tensor_cores(const torch::Tensor& x, const torch::Tensor& weight) {
  return allows_tensor_float() && weight.size(0) == 64 && weight.size(1) == 64 &&
         weight.size(2) == 3 && x.size(3) % 4 == 0 &&
         x.numel() >= (int64_t(1) << 24) && starts_on_float4(x);
}

}  // namespace

std::tuple<torch::Tensor, torch::Tensor> forward(
    const torch::Tensor& x_, const torch::Tensor& weight_, const torch::Tensor& bias_, const torch::Tensor& multiplier_,
    double slope, bool keep_convolved) {
  TORCH_CHECK(x_.dim() == 4, "x must have 4 dimensions, has ", x_.dim());
  check(x_, "x", x_);
  check(weight_, "weight", x_);
  check(bias_, "bias", x_);
  check(multiplier_, "multiplier", x_);
  TORCH_CHECK(multiplier_.numel() == weight_.size(0), "multiplier must have one element per channel");
  const c10::cuda::CUDAGuard guard(x_.device());
  const auto x = x_.contiguous(), weight = weight_.contiguous(), bias = bias_.contiguous();
  const auto multiplier = multiplier_.contiguous();

  if (fits_tensor_cores(x, weight)) {
    const Images images = tensor_cores::images_of(x, 64, 64, 0);
    auto output = torch::empty({x.size(0), 64, x.size(2) - 2, x.size(3) - 2}, x.options());
    auto convolved = torch::empty(keep_convolved ? output.sizes().vec() : std::vector<int64_t>{0}, x.options());
    const ScaledGelu store{bias.const_data_ptr<float>(), multiplier.const_data_ptr<float>(),
                           keep_convolved ? convolved.mutable_data_ptr<float>() : nullptr,
                           output.mutable_data_ptr<float>(), images.out_height, images.out_width, float(slope)};
    tensor_cores::conv2d<64, 64, 4>(x, weight, false, images, store);
    return {output, convolved};
  }

  const auto convolved = at::conv2d(x, weight, bias).contiguous();
  auto output = torch::empty(convolved.sizes(), convolved.options());
  if (output.numel() == 0) return {output, convolved};
  const int64_t channels = convolved.size(1), plane_size = convolved.size(2) * convolved.size(3);
  const bool vectorized = plane_size % 4 == 0;
  const auto kernel = vectorized ? scaled_gelu_forward_kernel<4> : scaled_gelu_forward_kernel<1>;
  const dim3 grid = plane_grid(convolved.size(0) * channels, plane_size / (vectorized ? 4 : 1));
  launch(kernel, grid, kThreads, 0, convolved.const_data_ptr<float>(), multiplier.const_data_ptr<float>(),
         output.mutable_data_ptr<float>(), plane_size, int(channels), float(slope));
  return {output, convolved};
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor> backward(
    const torch::Tensor& grad_output_, const torch::Tensor& x_, const torch::Tensor& weight_,
    const torch::Tensor& convolved, const torch::Tensor& multiplier_, double slope, bool want_x, bool want_weight) {
  check(grad_output_, "grad_output", convolved);
  TORCH_CHECK(grad_output_.sizes() == convolved.sizes(), "grad_output must have the output's shape");
  const c10::cuda::CUDAGuard guard(convolved.device());
  const auto grad_output = grad_output_.contiguous(), x = x_.contiguous(), weight = weight_.contiguous();
  const auto multiplier = multiplier_.contiguous();
  auto grad_convolved = torch::empty(convolved.sizes(), convolved.options());
  if (convolved.numel() == 0) {
    return {torch::zeros_like(x), torch::zeros_like(weight), torch::zeros({weight.size(0)}, weight.options()),
            torch::zeros_like(multiplier)};
  }

  const int64_t samples = convolved.size(0), channels = convolved.size(1);
  const int64_t plane_size = convolved.size(2) * convolved.size(3);
  const bool vectorized = plane_size % 4 == 0 && starts_on_float4(grad_output);
  const auto kernel = vectorized ? scaled_gelu_backward_kernel<4> : scaled_gelu_backward_kernel<1>;
  const dim3 grid = plane_grid(samples * channels, plane_size / (vectorized ? 4 : 1));
  auto partial_sums = torch::empty({samples, channels, int64_t(grid.y), 2}, convolved.options());
  launch(kernel, grid, kThreads, 0, grad_output.const_data_ptr<float>(), convolved.const_data_ptr<float>(),
         multiplier.const_data_ptr<float>(), grad_convolved.mutable_data_ptr<float>(), pairs(partial_sums), plane_size,
         int(channels), float(slope), fits_tensor_cores(x, weight));
  const auto sums = partial_sums.sum(at::IntArrayRef({0, 2}));
  const auto grad_multiplier = sums.select(1, 0).reshape(multiplier.sizes());
  const auto grad_bias = sums.select(1, 1).contiguous();

  torch::Tensor grad_x, grad_weight;
  if (!fits_tensor_cores(x, weight)) {
    if (want_x || want_weight) {
      std::tie(grad_x, grad_weight, std::ignore) = at::convolution_backward(
          grad_convolved, x, weight, std::nullopt, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1,
          {want_x, want_weight, false});
    }
    return {grad_x, grad_weight, grad_bias, grad_multiplier};
  }
  const Images images = tensor_cores::images_of(x, 64, 64, 0);
  if (want_x) {  // the full correlation of grad_convolved with the weights turned around
    grad_x = torch::empty(x.sizes(), x.options());
    const int height = images.in_height, width = images.in_width;
    const Images turned{images.samples, 64, 64, images.out_height, images.out_width, height, width, 2};
    const tensor_cores::Plain<64> store{grad_x.mutable_data_ptr<float>(), height, width};
    tensor_cores::conv2d<64, 64, 2>(grad_convolved, weight, true, turned, store);
  }
  if (want_weight) grad_weight = tensor_cores::conv2d_weight_gradient<64, 64, 4, 2>(x, grad_convolved, images);
  return {grad_x, grad_weight, grad_bias, grad_multiplier};
}
"""

kernels = load_inline(
    name="conv2d_mul_leaky_relu_gelu",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "backward"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],  # Hopper alone has these instructions
)


class ConvScaleLeakyGelu(torch.autograd.Function):
    """gelu(leaky_relu(conv2d(x, weight, bias) * multiplier))"""

    @staticmethod
    def forward(ctx, x, weight, bias, multiplier, slope, keep_convolved):
        output, convolved = kernels.forward(x, weight, bias, multiplier, slope, keep_convolved)
        ctx.save_for_backward(x, weight, convolved, multiplier)
        ctx.slope = slope
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight, convolved, multiplier = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:4]
        gradients = kernels.backward(grad_output, x, weight, convolved, multiplier, ctx.slope, *wanted[:2])
        kept = (gradient if want else None for gradient, want in zip(gradients, wanted, strict=True))
        return *kept, None, None


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, multiplier_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.negative_slope = 0.01

    def forward(self, x):
        return ConvScaleLeakyGelu.apply(
            x, self.conv.weight, self.conv.bias, self.multiplier, self.negative_slope, torch.is_grad_enabled()
        )
