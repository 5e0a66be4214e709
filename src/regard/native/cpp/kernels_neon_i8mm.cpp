// Kernels for ARM with int8 matrix products (Armv8.6: smmla multiplies 2 × 8 by 8 × 2 values).
#include "kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8)
#include <arm_neon.h>

namespace regard {
namespace {

#include "kernel_neon.h"

constexpr int kI8Panel = 12;
constexpr int kI8Group = 8;
constexpr int kI8Rows = 8;

// Eight inputs of two outputs, for P panels.
template <int P>
static inline void load_bytes(const int8_t* w, std::size_t panel_size,
                              int8x16_t (&to)[P * kI8Panel / 2]) {
  REGARD_UNROLL
  for (int p = 0; p < P; ++p) {
    REGARD_UNROLL
    for (int j = 0; j < kI8Panel / 2; ++j) {
      to[p * (kI8Panel / 2) + j] = vld1q_s8(w + p * panel_size + j * 16);
    }
  }
}

// One row: each output has two partial sums of four inputs each, joined at the end.
template <int P>
static inline void accumulate_row(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                  int inputs, IVec (&acc)[P * kI8Panel / 4]) {
  constexpr int V = P * kI8Panel / 2;
  int32x4_t sums[V];
  REGARD_UNROLL
  for (int j = 0; j < V; ++j) sums[j] = vdupq_n_s32(0);
  for (int k = 0; k < inputs; k += 8, w += 8 * kI8Panel) {
    const int8x8_t input = vld1_s8(x + k);
    const int8x16_t twice = vcombine_s8(input, input);
    int8x16_t weights[V];
    load_bytes<P>(w, panel_size, weights);
    REGARD_UNROLL
    for (int j = 0; j < V; ++j) sums[j] = vdotq_s32(sums[j], weights[j], twice);
  }
  REGARD_UNROLL
  for (int j = 0; j < V / 2; ++j) acc[j].v = vpaddq_s32(sums[2 * j], sums[2 * j + 1]);
}

// Pairs of rows by pairs of outputs: each sum is a 2 × 2 matrix [row][output].
template <int R, int P>
static inline void accumulate_i8(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                 int inputs, Prefetch, IVec (&acc)[R][P * kI8Panel / 4]) {
  if constexpr (R == 1) {
    accumulate_row<P>(w, panel_size, x, inputs, acc[0]);
  } else {
    constexpr int V = P * kI8Panel / 2, pairs = (R + 1) / 2, stride = pack_stride(R);
    int32x4_t sums[pairs][V];
    REGARD_UNROLL
    for (int r = 0; r < pairs; ++r) {
      REGARD_UNROLL
      for (int j = 0; j < V; ++j) sums[r][j] = vdupq_n_s32(0);
    }
    for (int k = 0; k < inputs; k += 8, w += 8 * kI8Panel, x += 8 * stride) {
      int8x16_t input[pairs], weights[V];
      REGARD_UNROLL
      for (int r = 0; r < pairs; ++r) input[r] = vld1q_s8(x + 16 * r);
      load_bytes<P>(w, panel_size, weights);
      REGARD_UNROLL
      for (int j = 0; j < V; ++j) {
        REGARD_UNROLL
        for (int r = 0; r < pairs; ++r) sums[r][j] = vmmlaq_s32(sums[r][j], input[r], weights[j]);
      }
    }
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      REGARD_UNROLL
      for (int j = 0; j < V / 2; ++j) {
        const int64x2_t left = vreinterpretq_s64_s32(sums[r / 2][2 * j]);
        const int64x2_t right = vreinterpretq_s64_s32(sums[r / 2][2 * j + 1]);
        acc[r][j].v = vreinterpretq_s32_s64(r % 2 == 0 ? vzip1q_s64(left, right)
                                                       : vzip2q_s64(left, right));
      }
    }
  }
}

#include "kernel_ops.h"
#include "kernel_products.h"

constexpr Kernels kTable = make_kernels("neon-i8mm");

}  // namespace

const Kernels* neon_i8mm_kernels() { return &kTable; }

}  // namespace regard

#else
namespace regard {
const Kernels* neon_i8mm_kernels() { return nullptr; }
}  // namespace regard
#endif
