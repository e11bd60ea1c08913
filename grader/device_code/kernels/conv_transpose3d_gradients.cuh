#pragma once
#include <kernels/conv_transpose3d.cuh>

// The gradients of the transposed convolutions in conv_transpose3d.cuh.
namespace tensor_cores {

constexpr int kGradientPitch = 68, kGradientChannel = 1160;  // 17 rows; 8 modulo 32 banks
template <int IN>
constexpr int kGradientStage = 8 * kGradientChannel + 9 * (IN / 16) * 128;

// grad_input[in][i] = sum over out channels and taps of weight * gradient[out][2i - 1 + tap]. A block takes 8 rows of
// 32 positions, a warp a row of them; a step takes 8 output channels and the taps of one depth.
template <int IN, int OUT, int WIDTH>
__global__ void __launch_bounds__(256, 2) conv_transpose3d_input_gradient_kernel(
    const float* __restrict__ gradient, const float4* __restrict__ weights, float* __restrict__ grad_input, Volumes s) {
  extern __shared__ float4 shared_memory[];
  float* const shared = reinterpret_cast<float*>(shared_memory);
  constexpr int kTiles = IN / 16, kSteps = OUT / 8 * 3;
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int across = (s.width + 31) / 32, down = (s.height + 7) / 8;
  const int x0 = blockIdx.x % across * 32, y0 = blockIdx.x / across % down * 8;
  const int z = blockIdx.x / across / down % s.depth, sample = blockIdx.x / across / down / s.depth;

  const auto load = [&](int step) {
    float* const target = shared + step % 2 * kGradientStage<IN>;
    const int out0 = step / 3 * 8, out_z = 2 * z - 1 + step % 3;
    for (int i = threadIdx.x; i < 8 * 17 * (68 / WIDTH); i += 256) {
      const int v = i % (68 / WIDTH) * WIDTH, r = i / (68 / WIDTH) % 17, channel = i / (68 / WIDTH) / 17;
      const int x = 2 * x0 - 4 + v, y = 2 * y0 - 1 + r;
      const bool valid = unsigned(x) < unsigned(s.out_width) && unsigned(y) < unsigned(s.out_height) &&
                         unsigned(out_z) < unsigned(s.out_depth);
      const int64_t plane = (int64_t(sample) * OUT + out0 + channel) * s.out_depth + out_z;
      copy_async<WIDTH>(target + channel * kGradientChannel + r * kGradientPitch + v,
                        valid ? gradient + (plane * s.out_height + y) * s.out_width + x : gradient, valid);
    }
    for (int i = threadIdx.x; i < 9 * kTiles * 32; i += 256) {
      copy_async<4>(target + 8 * kGradientChannel + i * 4,
                    reinterpret_cast<const float*>(weights + step * 9 * kTiles * 32 + i), true);
    }
  };

  load(0);
  commit();
  float sums[kTiles][4][4] = {};
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    wait<0>();
    __syncthreads();
    if (step + 1 < kSteps) load(step + 1);
    commit();
    const float* const stage = shared + step % 2 * kGradientStage<IN>;
    const auto* const w = reinterpret_cast<const uint4*>(stage + 8 * kGradientChannel) + lane;
#pragma unroll
    for (int tap_y = 0; tap_y < 3; ++tap_y) {
      uint32_t b[2][4][3];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* const d =
              stage + (t + 4 * k) * kGradientChannel + (2 * row + tap_y) * kGradientPitch + 16 * j + 2 * g + 4;
          const float2 pair = *reinterpret_cast<const float2*>(d);
          b[k][j][0] = rounded(d[-1]), b[k][j][1] = rounded(pair.x), b[k][j][2] = rounded(pair.y);
        }
      }
#pragma unroll
      for (int tap_x = 0; tap_x < 3; ++tap_x) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const uint4 loaded = w[((tap_y * 3 + tap_x) * kTiles + m) * 32];
          const uint32_t a[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) multiply(sums[m][j], a, b[0][j][tap_x], b[1][j][tap_x]);
        }
      }
    }
  }

  const int y = y0 + row;
  if (y >= s.height) return;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int x = x0 + 8 * j + 2 * t;
        const int64_t plane = (int64_t(sample) * IN + m * 16 + g + 8 * h) * s.depth + z;
        float* const target = grad_input + (plane * s.height + y) * s.width + x;
        if (s.width % 2 == 0) {
          if (x < s.width) *reinterpret_cast<float2*>(target) = make_float2(sums[m][j][2 * h], sums[m][j][2 * h + 1]);
        } else {
          if (x < s.width) target[0] = sums[m][j][2 * h];
          if (x + 1 < s.width) target[1] = sums[m][j][2 * h + 1];
        }
      }
    }
  }
}

constexpr int kRing = 5, kRingPitch = 80, kInputPitch = 40;
template <int IN, int OUT>
constexpr int kWeightGradientFloats3d = kRing * OUT * kRingPitch + 2 * IN * kInputPitch;

// partial[part][in][out][tap]: sum over a part's rows of input[in][i] * gradient[out][2i - 1 + tap]. A block takes the
// nine taps of one depth, a warp 16 output channels and COLUMNS * 8 input channels. Rows of the gradient lie in a ring.
template <int IN, int OUT, int COLUMNS, int WIDTH>
__global__ void __launch_bounds__(OUT / 16 * (IN / 8 / COLUMNS) * 32, 2) conv_transpose3d_weight_gradient_kernel(
    const float* __restrict__ input, const float* __restrict__ gradient, float* __restrict__ partial, Volumes s) {
  extern __shared__ float4 shared_memory[];
  float* const ring = reinterpret_cast<float*>(shared_memory);
  float* const inputs = ring + kRing * OUT * kRingPitch;
  constexpr int kThreads = OUT / 16 * (IN / 8 / COLUMNS) * 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int out0 = warp % (OUT / 16) * 16, in0 = warp / (OUT / 16) * COLUMNS * 8;
  const int tap_z = blockIdx.x % 3, part = blockIdx.x / 3, parts = gridDim.x / 3;
  const int strips = (s.width + 31) / 32;
  const int64_t rows = int64_t(s.samples) * s.depth * strips * s.height, last = rows * (part + 1) / parts;

  float sums[9][COLUMNS][4] = {};
  for (int64_t first = rows * part / parts; first < last;) {
    const int begin = first % s.height;
    const int end = begin + int(last - first < s.height - begin ? last - first : s.height - begin);
    const int x0 = int(first / s.height % strips) * 32, z = int(first / s.height / strips % s.depth);
    const int64_t sample = first / s.height / strips / s.depth;
    const int out_z = 2 * z - 1 + tap_z;
    first += end - begin;
    if (unsigned(out_z) >= unsigned(s.out_depth)) continue;

    const auto load_gradient = [&](int r) {  // row r - 1 of the outputs
      float* const target = ring + r % kRing * OUT * kRingPitch;
      for (int i = threadIdx.x; i < OUT * (68 / WIDTH); i += kThreads) {
        const int v = i % (68 / WIDTH) * WIDTH, channel = i / (68 / WIDTH), x = 2 * x0 - 4 + v;
        const bool valid = unsigned(x) < unsigned(s.out_width) && unsigned(r - 1) < unsigned(s.out_height);
        const int64_t plane = (sample * OUT + channel) * s.out_depth + out_z;
        copy_async<WIDTH>(target + channel * kRingPitch + v,
                          valid ? gradient + (plane * s.out_height + r - 1) * s.out_width + x : gradient, valid);
      }
    };
    const auto load_input = [&](int y) {
      float* const target = inputs + (y & 1) * IN * kInputPitch;
      for (int i = threadIdx.x; i < IN * (32 / WIDTH); i += kThreads) {
        const int v = i % (32 / WIDTH) * WIDTH, channel = i / (32 / WIDTH), x = x0 + v;
        const bool valid = x < s.width;
        const int64_t plane = (sample * IN + channel) * s.depth + z;
        copy_async<WIDTH>(target + channel * kInputPitch + v,
                          valid ? input + (plane * s.height + y) * s.width + x : input, valid);
      }
    };

    load_gradient(2 * begin), load_gradient(2 * begin + 1), load_gradient(2 * begin + 2), load_input(begin);
    commit();
    for (int y = begin; y < end; ++y) {
      wait<0>();
      __syncthreads();
      if (y + 1 < end) load_gradient(2 * y + 3), load_gradient(2 * y + 4), load_input(y + 1);
      commit();
#pragma unroll 1
      for (int q = 0; q < 4; ++q) {  // lane t takes positions 8q + 2t and 8q + 2t + 1
        uint32_t b[COLUMNS][2];
#pragma unroll
        for (int n = 0; n < COLUMNS; ++n) {
          const float2 x = *reinterpret_cast<const float2*>(
              inputs + ((y & 1) * IN + in0 + 8 * n + g) * kInputPitch + 8 * q + 2 * t);
          b[n][0] = rounded(x.x), b[n][1] = rounded(x.y);
        }
#pragma unroll
        for (int tap_y = 0; tap_y < 3; ++tap_y) {
          uint32_t d[2][5];  // output channel g or g + 8; outputs from 2 (8q + 2t) - 1
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float* const from =
                ring + ((2 * y + tap_y) % kRing * OUT + out0 + g + 8 * h) * kRingPitch + 16 * q + 4 * t + 4;
            const float4 v = *reinterpret_cast<const float4*>(from);
            d[h][0] = rounded(from[-1]), d[h][1] = rounded(v.x), d[h][2] = rounded(v.y);
            d[h][3] = rounded(v.z), d[h][4] = rounded(v.w);
          }
#pragma unroll
          for (int tap_x = 0; tap_x < 3; ++tap_x) {
            const uint32_t a[4] = {d[0][tap_x], d[1][tap_x], d[0][tap_x + 2], d[1][tap_x + 2]};
#pragma unroll
            for (int n = 0; n < COLUMNS; ++n) multiply(sums[tap_y * 3 + tap_x][n], a, b[n][0], b[n][1]);
          }
        }
      }
    }
    __syncthreads();
  }

  partial += int64_t(part) * IN * OUT * 27 + tap_z * 9;
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
    for (int n = 0; n < COLUMNS; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int out = out0 + g + k / 2 * 8, in = in0 + 8 * n + 2 * t + k % 2;
        partial[(in * OUT + out) * 27 + tap] = sums[tap][n][k];
      }
    }
  }
}

}  // namespace tensor_cores
