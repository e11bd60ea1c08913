#pragma once
#include <kernels/tensor_cores.cuh>

// Transposed 3x3x3 convolutions of stride 2 and padding 1 on NCDHW tensors by TensorFloat-32 tensor cores.
// Per axis, input i adds to output 2i - 1 + tap: an even output 2i takes tap 1 of i, an odd output 2i + 1 takes tap 2
// of i and tap 0 of i + 1.
namespace tensor_cores {

struct Volumes {
  int samples, depth, height, width;              // of the input
  int out_depth, out_height, out_width;  // 2n or 2n - 1 each
};

// Weights (in, out, 27) in the order in which lanes read them, four floats each:
// [tap][in / 8][out / 16][lane], or `flipped` [out / 8][tap][in / 16][lane].
__global__ void arrange_weights3d(
    const float* weight, float4* arranged, int in_channels, int out_channels, bool flipped) {
  const int rows = flipped ? in_channels : out_channels, columns = flipped ? out_channels : in_channels;
  const int tiles = rows / 16, chunks = columns / 8, count = 27 * chunks * tiles * 32;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int lane = i % 32, tile = i / 32 % tiles, outer = i / 32 / tiles;
    const int tap = flipped ? outer % 27 : outer / chunks, chunk = flipped ? outer / 27 : outer % chunks;
    float value[4];
    for (int k = 0; k < 4; ++k) {
      const int row = tile * 16 + lane / 4 + (k % 2) * 8, column = chunk * 8 + lane % 4 + (k / 2) * 4;
      const int in = flipped ? row : column, out = flipped ? column : row;
      value[k] = __uint_as_float(rounded(weight[(in * out_channels + out) * 27 + tap]));
    }
    arranged[i] = make_float4(value[0], value[1], value[2], value[3]);
  }
}

// A block of 8 warps takes kForwardRows rows of 32 input positions; a warp takes TILES * 16 output channels of a row.
template <int OUT, int TILES>
constexpr int kForwardRows = 8 / (OUT / 16 / TILES);

template <int IN, int OUT, int TILES>
constexpr int kForwardFloats = IN * (2 * (kForwardRows<OUT, TILES> + 1) * 36);

// sink.take(parity, sample, out_channel, z, y, x, values, m, j, h) gets the outputs at 2z + parity / 2,
// 2y + parity % 2, and 2x to 2x + 3; m, j and h number a thread's places. sink.finish(...) comes last.
template <int IN, int OUT, int TILES, int WIDTH, typename Sink>
__global__ void __launch_bounds__(256, 2) conv_transpose3d_kernel(
    const float* __restrict__ input, const float4* __restrict__ weights, Volumes s, Sink sink) {
  extern __shared__ float4 shared_memory[];
  float* const shared = reinterpret_cast<float*>(shared_memory);
  constexpr int kHeight = kForwardRows<OUT, TILES>, kPitch = 36, kChannel = kForwardFloats<IN, OUT, TILES> / IN;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row = warp % kHeight, tile0 = warp / kHeight * TILES;
  const int across = (s.width + 31) / 32, down = (s.height + kHeight - 1) / kHeight;
  const int x0 = blockIdx.x % across * 32, y0 = blockIdx.x / across % down * kHeight;
  const int z0 = blockIdx.x / across / down % s.depth, sample = blockIdx.x / across / down / s.depth;

  constexpr int kVectors = (33 + WIDTH - 1) / WIDTH;
  for (int i = threadIdx.x; i < IN * 2 * (kHeight + 1) * kVectors; i += 256) {
    const int v = i % kVectors * WIDTH, r = i / kVectors % (kHeight + 1), d = i / kVectors / (kHeight + 1) % 2;
    const int channel = i / kVectors / (kHeight + 1) / 2, x = x0 + v, y = y0 + r, z = z0 + d;
    const bool valid = x < s.width && y < s.height && z < s.depth;
    copy_async<WIDTH>(
        shared + channel * kChannel + (d * (kHeight + 1) + r) * kPitch + v,
        valid ? input + (((int64_t(sample) * IN + channel) * s.depth + z) * s.height + y) * s.width + x : input, valid);
  }
  commit();
  wait<0>();
  __syncthreads();
  const int y = y0 + row;
  if (y >= s.height) return;

#pragma unroll 1
  for (int parity = 0; parity < 4; ++parity) {
    const int odd_z = parity / 2, odd_y = parity % 2;
    float sums[2][TILES][4][4] = {};  // even and odd x
#pragma unroll 1
    for (int taps = 0; taps < (1 + odd_z) * (1 + odd_y); ++taps) {
      const int dz = odd_y ? taps / 2 : taps, dy = odd_y ? taps % 2 : 0;
      const int tap_z = odd_z ? 2 - 2 * dz : 1, tap_y = odd_y ? 2 - 2 * dy : 1;
      const float* const source = shared + t * kChannel + (dz * (kHeight + 1) + row + dy) * kPitch + g;
      const float4* const w = weights + ((tap_z * 9 + tap_y * 3) * (IN / 8) * (OUT / 16) + tile0) * 32 + lane;
#pragma unroll 1
      for (int chunk = 0; chunk < IN / 8; ++chunk) {
        uint32_t here[2][4], next[2][4];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            here[k][j] = rounded(source[(chunk * 8 + 4 * k) * kChannel + 8 * j]);
            next[k][j] = rounded(source[(chunk * 8 + 4 * k) * kChannel + 8 * j + 1]);
          }
        }
#pragma unroll
        for (int tap_x = 0; tap_x < 3; ++tap_x) {
#pragma unroll
          for (int m = 0; m < TILES; ++m) {
            const float4 loaded = w[((tap_x * (IN / 8) + chunk) * (OUT / 16) + m) * 32];
            const uint32_t a[4] = {__float_as_uint(loaded.x), __float_as_uint(loaded.y), __float_as_uint(loaded.z),
                                   __float_as_uint(loaded.w)};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              if (tap_x == 0) multiply(sums[1][m][j], a, next[0][j], next[1][j]);
              if (tap_x == 1) multiply(sums[0][m][j], a, here[0][j], here[1][j]);
              if (tap_x == 2) multiply(sums[1][m][j], a, here[0][j], here[1][j]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < TILES; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float values[4] = {sums[0][m][j][2 * h], sums[1][m][j][2 * h], sums[0][m][j][2 * h + 1],
                                   sums[1][m][j][2 * h + 1]};
          sink.take(parity, sample, (tile0 + m) * 16 + g + 8 * h, z0, y, x0 + 8 * j + 2 * t, values, m, j, h);
        }
      }
    }
  }
  sink.finish(sample, tile0 * 16 + g, z0, y, x0 + 2 * t);
}

}  // namespace tensor_cores
