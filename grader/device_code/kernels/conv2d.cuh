#pragma once
#include <kernels/moments.cuh>
#include <kernels/tensor_cores.cuh>

// 3x3 convolutions of stride 1 on NCHW tensors by TensorFloat-32 tensor cores.
namespace tensor_cores {

struct Images {
  int samples, in_channels, out_channels, in_height, in_width, out_height, out_width, pad;
};

// Weights as the products' right matrices: [in_channel / 8][tap][half of 8 in_channels][out_channel][in_channel % 4].
// `flipped` makes the weights of the convolution's gradient: channels swapped, taps turned around.
__global__ void arrange_weights2d(
    const float* __restrict__ weight, float* __restrict__ arranged, int in_channels, int out_channels, bool flipped) {
  const int count = in_channels * out_channels * 9;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int out = i / 4 % out_channels, half = i / 4 / out_channels % 2, outer = i / 8 / out_channels;
    const int tap = outer % 9, in = outer / 9 * 8 + half * 4 + i % 4;
    arranged[i] = __uint_as_float(rounded(flipped ? weight[(in * out_channels + out) * 9 + 8 - tap]
                                                  : weight[(out * in_channels + in) * 9 + tap]));
  }
}

constexpr int kPixels = 64, kRowPitch = kPixels + 4;  // of a row of the output, for a block

// A block of GROUPS warpgroups takes twice as many rows of the output; a stage is what it needs of 8 channels.
template <int GROUPS>
constexpr int kChannelPitch = (2 * GROUPS + 2) * kRowPitch;  // 8 or 24 modulo 32 banks, for 4 and 2 groups
template <int OUT, int GROUPS>
constexpr int kStageFloats = 8 * kChannelPitch<GROUPS> + 9 * 8 * OUT;
template <int OUT, int GROUPS>
constexpr int kConvolutionFloats = (GROUPS == 2 ? 3 : 4) * kStageFloats<OUT, GROUPS>;
template <int OUT, int GROUPS>
constexpr int kMomentsFloats = 128 * GROUPS * OUT / 2 + OUT;  // besides those, if moments are wanted

// OUT: out_channels, 32 or 64. WIDTH: floats of one copy; divides the input's width, address and padding.
// store(sample, channel, row, column, first, second): two neighbouring outputs; column is even and within the output.
// MOMENTS: records[block][out_channel] of the outputs; each thread sums in shared memory, as it has no registers left.
template <int OUT, int GROUPS, int WIDTH, typename Store, bool MOMENTS = false>
__global__ void __launch_bounds__(128 * GROUPS, GROUPS == 2 ? 2 : 1) conv2d_kernel(
    const float* __restrict__ input, const float* __restrict__ weights, Images s, Store store,
    moments::Record* __restrict__ records) {
  extern __shared__ float4 shared_memory[];
  float* const shared = reinterpret_cast<float*>(shared_memory);
  constexpr int kStage = kStageFloats<OUT, GROUPS>, kStages = GROUPS == 2 ? 3 : 4;
  constexpr int kThreads = 128 * GROUPS, kRows = 2 * GROUPS, kPitch = kChannelPitch<GROUPS>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row = warp / 4 * 2, pixel = warp % 4 * 16 + 2 * g;  // a warpgroup takes two rows, a lane pixels 2g, 2g + 1
  const int across = (s.out_width + kPixels - 1) / kPixels, down = (s.out_height + kRows - 1) / kRows;
  const int tiles = s.samples * down * across, chunks = s.in_channels / 8;
  const int own = tiles <= int(blockIdx.x) ? 0 : (tiles - blockIdx.x - 1) / gridDim.x + 1;
  const int steps = own * chunks;

  const auto load = [&](int step) {
    const int tile = blockIdx.x + step / chunks * gridDim.x, chunk = step % chunks;
    const int x0 = tile % across * kPixels - s.pad, y0 = tile / across % down * kRows - s.pad;
    const int sample = tile / across / down;
    float* const target = shared + step % kStages * kStage;
    const float* const source = input + (int64_t(sample) * s.in_channels + chunk * 8) * s.in_height * s.in_width;
    constexpr int kVectors = (kPixels + 2 + WIDTH - 1) / WIDTH;
    for (int i = threadIdx.x; i < 8 * (kRows + 2) * kVectors; i += kThreads) {
      const int v = i % kVectors * WIDTH, r = i / kVectors % (kRows + 2), channel = i / kVectors / (kRows + 2);
      const int x = x0 + v, y = y0 + r;
      const bool valid = unsigned(x) < unsigned(s.in_width) && unsigned(y) < unsigned(s.in_height);
      copy_async<WIDTH>(target + channel * kPitch + r * kRowPitch + v,
                        valid ? source + (int64_t(channel) * s.in_height + y) * s.in_width + x : input, valid);
    }
    for (int i = threadIdx.x; i < 9 * 2 * OUT; i += kThreads) {
      copy_async<4>(target + 8 * kPitch + i * 4, weights + chunk * 9 * 8 * OUT + i * 4, true);
    }
  };

  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) load(step);
    commit();
  }
  // [pair of channels][thread], the pair's sums of (v - k) and (v - k)^2, and k of each channel, a value of the block's
  auto* const own_moments = reinterpret_cast<float4*>(shared + kStages * kStage) + threadIdx.x;
  float* const shifts = shared + kStages * kStage + kThreads * OUT / 2;
  if constexpr (MOMENTS) {
    for (int j = 0; j < OUT / 8; ++j) own_moments[j * kThreads] = {};
  }
  float sums[2][OUT / 2] = {};
  for (int step = 0; step < steps; ++step) {
    wait<kStages - 2>();
    fence_shared();
    __syncthreads();
    if (step + kStages - 1 < steps) load(step + kStages - 1);
    commit();

    const float* const stage = shared + step % kStages * kStage;
    const uint64_t w = descriptor<OUT>(stage + 8 * kPitch);
#pragma unroll
    for (int y = 0; y < 4; ++y) {  // rows of the input that the two rows of the output need
      uint32_t x[2][4];            // channel t or t + 4, pixels 2g to 2g + 3
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const auto* const pairs = reinterpret_cast<const float2*>(
            stage + (t + 4 * k) * kPitch + (row + y) * kRowPitch + pixel);
        const float2 first = pairs[0], second = pairs[1];
        x[k][0] = rounded(first.x), x[k][1] = rounded(first.y);
        x[k][2] = rounded(second.x), x[k][3] = rounded(second.y);
      }
      fence_products();
#pragma unroll
      for (int dx = 0; dx < 3; ++dx) {
        const uint32_t a[4] = {x[0][dx], x[0][dx + 1], x[1][dx], x[1][dx + 1]};
        if (y < 3) multiply(sums[0], a, w + (y * 3 + dx) * 2 * OUT);
        if (y > 0) multiply(sums[1], a, w + ((y - 1) * 3 + dx) * 2 * OUT);
      }
      commit_products();
      wait_products<0>();
    }

    if (step % chunks != chunks - 1) continue;
    const int tile = blockIdx.x + step / chunks * gridDim.x, sample = tile / across / down;
    const int column = tile % across * kPixels + pixel;
    settle(sums[0]), settle(sums[1]);
    if constexpr (MOMENTS) {
      if (step < chunks) {
#pragma unroll
        for (int n = 0; n < OUT / 2 && warp == 0 && g == 0; n += 4) {
          shifts[n * 2 + 2 * t] = sums[0][n], shifts[n * 2 + 2 * t + 1] = sums[0][n + 1];
        }
        __syncthreads();
      }
      const int rows = column < s.out_width ? s.out_height - tile / across % down * kRows - row : 0;
#pragma unroll
      for (int n = 0; n < OUT / 2; n += 4) {
        float4 moment = own_moments[n / 4 * kThreads];
        const float2 k = *reinterpret_cast<const float2*>(shifts + n * 2 + 2 * t);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (i / 2 >= rows) continue;
          const float first = sums[i / 2][n + i % 2 * 2] - k.x, second = sums[i / 2][n + i % 2 * 2 + 1] - k.y;
          moment.x += first, moment.y += first * first;
          moment.z += second, moment.w += second * second;
        }
        own_moments[n / 4 * kThreads] = moment;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int y = tile / across % down * kRows + row + r;
#pragma unroll
      for (int n = 0; n < OUT / 2; n += 4) {
        if (y < s.out_height && column < s.out_width) {
          store(sample, n * 2 + 2 * t, y, column, sums[r][n], sums[r][n + 2]);
          store(sample, n * 2 + 2 * t + 1, y, column, sums[r][n + 1], sums[r][n + 3]);
        }
        sums[r][n] = sums[r][n + 1] = sums[r][n + 2] = sums[r][n + 3] = 0.0f;
      }
    }
  }
  if constexpr (MOMENTS) {
    static_assert(kThreads == 8 * OUT, "eight threads join a channel's sums");
    __syncthreads();
    const int channel = threadIdx.x / 8, first = channel / 8 * kThreads + threadIdx.x % 8 * 4 + channel % 8 / 2;
    const float4* const all = reinterpret_cast<const float4*>(shared + kStages * kStage) + first;
    float2 sum{};
    for (int i = 0; i < kThreads / 32; ++i) {
      const float4 moment = all[i * 32];
      sum.x += channel % 2 ? moment.z : moment.x;
      sum.y += channel % 2 ? moment.w : moment.y;
    }
    for (int offset = 4; offset > 0; offset /= 2) {
      sum.x += __shfl_xor_sync(0xffffffffu, sum.x, offset);
      sum.y += __shfl_xor_sync(0xffffffffu, sum.y, offset);
    }
    int count = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      count += min(kRows, s.out_height - tile / across % down * kRows) * min(kPixels, s.out_width - tile % across * kPixels);
    }
    if (threadIdx.x % 8 == 0) {
      records[blockIdx.x * OUT + channel] = moments::record_of(count, shifts[channel], sum.x, sum.y);
    }
  }
}

constexpr int kStrip = 128, kStripPitch = 144;  // 16 modulo 32 banks

template <int IN, int OUT>
constexpr int kWeightGradientFloats = (4 * IN + 2 * OUT) * kStripPitch;

// partial[block][out][in][tap]: sum over this block's rows of gradient[out][pixel] * input[in][pixel + tap - pad]. A
// warp owns 32 output channels and 8 input channels. Rows of the input lie in a ring of four.
template <int IN, int OUT, int INPUT_WIDTH, int GRADIENT_WIDTH>
__global__ void __launch_bounds__(IN * OUT / 8, 1) conv2d_weight_gradient_kernel(
    const float* __restrict__ input, const float* __restrict__ gradient, float* __restrict__ partial, Images s) {
  extern __shared__ float4 shared_memory[];
  float* const shared = reinterpret_cast<float*>(shared_memory);
  constexpr int kThreads = IN * OUT / 8;
  float* const gradients = shared + 4 * IN * kStripPitch;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int out0 = warp / (IN / 8) * 32, in0 = warp % (IN / 8) * 8;
  const int strips = (s.out_width + kStrip - 1) / kStrip;
  const int64_t rows = int64_t(s.samples) * strips * s.out_height;
  const int64_t last = rows * (blockIdx.x + 1) / gridDim.x;

  float sums[9][2][4] = {};
  for (int64_t first = rows * blockIdx.x / gridDim.x; first < last;) {
    const int begin = first % s.out_height;
    const int end = begin + int(last - first < s.out_height - begin ? last - first : s.out_height - begin);
    const int x0 = int(first / s.out_height % strips) * kStrip;
    const int64_t sample = first / s.out_height / strips;
    first += end - begin;

    const auto load_input = [&](int y) {  // row y of the padded input
      constexpr int kVectors = (kStrip + 2 + INPUT_WIDTH - 1) / INPUT_WIDTH;
      float* const target = shared + (y & 3) * IN * kStripPitch;
      for (int i = threadIdx.x; i < IN * kVectors; i += kThreads) {
        const int v = i % kVectors * INPUT_WIDTH, channel = i / kVectors, x = x0 + v - s.pad;
        const bool valid = unsigned(x) < unsigned(s.in_width) && unsigned(y - s.pad) < unsigned(s.in_height);
        copy_async<INPUT_WIDTH>(
            target + channel * kStripPitch + v,
            valid ? input + ((sample * IN + channel) * s.in_height + y - s.pad) * s.in_width + x : input, valid);
      }
    };
    const auto load_gradient = [&](int y) {
      constexpr int kVectors = kStrip / GRADIENT_WIDTH;
      float* const target = gradients + (y & 1) * OUT * kStripPitch;
      for (int i = threadIdx.x; i < OUT * kVectors; i += kThreads) {
        const int v = i % kVectors * GRADIENT_WIDTH, channel = i / kVectors, x = x0 + v;
        const bool valid = x < s.out_width;
        copy_async<GRADIENT_WIDTH>(
            target + channel * kStripPitch + v,
            valid ? gradient + ((sample * OUT + channel) * s.out_height + y) * s.out_width + x : gradient, valid);
      }
    };

    load_input(begin), load_input(begin + 1), load_input(begin + 2), load_gradient(begin);
    commit();
    for (int y = begin; y < end; ++y) {
      wait<0>();
      __syncthreads();
      if (y + 1 < end) load_input(y + 3), load_gradient(y + 1);
      commit();

      const float* const d = gradients + ((y & 1) * OUT + out0 + g) * kStripPitch + 4 * t;
#pragma unroll 1
      for (int q = 0; q < kStrip; q += 16) {  // lane t takes pixels q + 4t to q + 4t + 3, two for each product
        uint32_t a[2][2][4];                  // product, tile of 16 output channels
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float4 v = *reinterpret_cast<const float4*>(d + (m * 16 + h * 8) * kStripPitch + q);
            a[0][m][h] = rounded(v.x), a[0][m][h + 2] = rounded(v.y);
            a[1][m][h] = rounded(v.z), a[1][m][h + 2] = rounded(v.w);
          }
        }
#pragma unroll
        for (int dy = 0; dy < 3; ++dy) {
          const float* const x = shared + (((y + dy) & 3) * IN + in0 + g) * kStripPitch + 4 * t + q;
          const float4 v = *reinterpret_cast<const float4*>(x);
          const float2 u = *reinterpret_cast<const float2*>(x + 4);
          const uint32_t b[6] = {rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w), rounded(u.x), rounded(u.y)};
#pragma unroll
          for (int k = 0; k < 2; ++k) {
#pragma unroll
            for (int dx = 0; dx < 3; ++dx) {
#pragma unroll
              for (int m = 0; m < 2; ++m) multiply(sums[dy * 3 + dx][m], a[k][m], b[2 * k + dx], b[2 * k + dx + 1]);
            }
          }
        }
      }
    }
    __syncthreads();
  }

  partial += int64_t(blockIdx.x) * OUT * IN * 9;
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int out = out0 + m * 16 + g + k / 2 * 8, in = in0 + 2 * t + k % 2;
        partial[(out * IN + in) * 9 + tap] = sums[tap][m][k];
      }
    }
  }
}

}  // namespace tensor_cores
