#pragma once
// Launches of the tensor cores' convolutions on tensors: contiguous, float32, of sizes that the kernels are made for.
#include <kernels/conv2d.cuh>
#include <kernels/conv_transpose3d_gradients.cuh>
#include <kernels/host.cuh>

namespace tensor_cores {

inline Images images_of(const torch::Tensor& x, int in_channels, int out_channels, int pad) {
  const int height = int(x.size(2)), width = int(x.size(3)), more = 2 * pad - 2;
  return {int(x.size(0)), in_channels, out_channels, height, width, height + more, width + more, pad};
}

// Writes the sums of a convolution as they are. Rows must start on two floats.
template <int CHANNELS>
struct Plain {
  float* output;
  int height, width;

  __device__ void operator()(int sample, int channel, int y, int x, float first, float second) const {
    const int64_t at = ((int64_t(sample) * CHANNELS + channel) * height + y) * width + x;
    __stcs(reinterpret_cast<float2*>(output + at), make_float2(first, second));
  }
};

// A 3x3 convolution of `input`, whose sums go to `store`; with `flipped` filters, the gradient of one. With MOMENTS,
// `records` gets kMultiprocessors records of each channel.
template <int IN, int OUT, int WIDTH, bool MOMENTS = false, typename Store>
void conv2d(const torch::Tensor& input, const torch::Tensor& filters, bool flipped, Images s, Store store,
            moments::Record* records = nullptr) {
  torch::Tensor arranged = torch::empty({filters.numel()}, filters.options());
  host::launch(arrange_weights2d, 36, 256, 0, filters.const_data_ptr<float>(), arranged.mutable_data_ptr<float>(), IN,
               OUT, flipped);
  host::launch(conv2d_kernel<OUT, 4, WIDTH, Store, MOMENTS>, host::kMultiprocessors, 512,
               kConvolutionFloats<OUT, 4> + (MOMENTS ? kMomentsFloats<OUT, 4> : 0),
               input.const_data_ptr<float>(), static_cast<const float*>(arranged.const_data_ptr<float>()), s, store,
               records);
}

template <int IN, int OUT, int INPUT_WIDTH, int GRADIENT_WIDTH>
torch::Tensor conv2d_weight_gradient(const torch::Tensor& input, const torch::Tensor& gradient, Images s) {
  torch::Tensor partial = torch::empty({host::kMultiprocessors, OUT, IN, 3, 3}, input.options());
  const auto kernel = conv2d_weight_gradient_kernel<IN, OUT, INPUT_WIDTH, GRADIENT_WIDTH>;
  host::launch(kernel, host::kMultiprocessors, IN * OUT / 8,
               kWeightGradientFloats<IN, OUT>, input.const_data_ptr<float>(), gradient.const_data_ptr<float>(),
               partial.mutable_data_ptr<float>(), s);
  return partial.sum(0);
}

inline Volumes volumes_of(const torch::Tensor& x, int64_t output_padding) {
  const int depth = int(x.size(2)), height = int(x.size(3)), width = int(x.size(4)), less = 1 - int(output_padding);
  return {int(x.size(0)), depth, height, width, 2 * depth - less, 2 * height - less, 2 * width - less};
}

inline unsigned tiles_of(const Volumes& v, int rows) {
  return v.samples * v.depth * host::blocks_of(v.height, rows) * host::blocks_of(v.width, 32);
}

template <int IN, int OUT>
torch::Tensor arranged3d(const torch::Tensor& weight, bool flipped) {
  torch::Tensor arranged = torch::empty({weight.numel()}, weight.options());
  host::launch(arrange_weights3d, 54, 256, 0, weight.const_data_ptr<float>(),
               reinterpret_cast<float4*>(arranged.mutable_data_ptr<float>()), IN, OUT, flipped);
  return arranged;
}

// A transposed convolution, whose sums go to `sink`; a warp takes TILES * 16 output channels.
template <int IN, int OUT, int TILES, typename Sink>
void conv_transpose3d(const torch::Tensor& x, const torch::Tensor& weight, const Volumes& v, Sink sink) {
  const torch::Tensor arranged = arranged3d<IN, OUT>(weight, false);
  host::launch(conv_transpose3d_kernel<IN, OUT, TILES, 4, Sink>, tiles_of(v, kForwardRows<OUT, TILES>), 256,
               kForwardFloats<IN, OUT, TILES>, x.const_data_ptr<float>(),
               reinterpret_cast<const float4*>(arranged.const_data_ptr<float>()), v, sink);
}

template <int IN, int OUT>
torch::Tensor conv_transpose3d_input_gradient(
    const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& weight, const Volumes& v) {
  torch::Tensor grad_x = torch::empty(x.sizes(), x.options());
  const torch::Tensor arranged = arranged3d<IN, OUT>(weight, true);
  host::launch(conv_transpose3d_input_gradient_kernel<IN, OUT, 4>, tiles_of(v, 8), 256, 2 * kGradientStage<IN>,
               gradient.const_data_ptr<float>(), reinterpret_cast<const float4*>(arranged.const_data_ptr<float>()),
               grad_x.mutable_data_ptr<float>(), v);
  return grad_x;
}

// A warp takes COLUMNS * 8 input channels. PARTS blocks share the taps of one depth.
template <int IN, int OUT, int COLUMNS, int PARTS>
torch::Tensor conv_transpose3d_weight_gradient(
    const torch::Tensor& gradient, const torch::Tensor& x, const Volumes& v) {
  torch::Tensor partial = torch::empty({PARTS, IN, OUT, 3, 3, 3}, x.options());
  host::launch(conv_transpose3d_weight_gradient_kernel<IN, OUT, COLUMNS, 4>, 3 * PARTS,
               OUT / 16 * (IN / 8 / COLUMNS) * 32, kWeightGradientFloats3d<IN, OUT>, x.const_data_ptr<float>(),
               gradient.const_data_ptr<float>(), partial.mutable_data_ptr<float>(), v);
  return partial.sum(0);
}

}  // namespace tensor_cores
