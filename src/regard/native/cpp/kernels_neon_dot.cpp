// Kernels for ARM with the dot-product extension (Armv8.2: sdot adds four int8 products at once).
#include "kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>

namespace regard {
namespace {

#include "kernel_neon.h"

constexpr int kI8Panel = 12;
constexpr int kI8Group = 4;
constexpr int kI8Rows = 8;

template <int R, int V, int r = 0>
static inline void dot_lanes(IVec (&acc)[R][V], const int8x16_t (&w)[V], const int8x16_t* x) {
  if constexpr (r < R) {
    REGARD_UNROLL
    for (int j = 0; j < V; ++j) {
      acc[r][j].v = vdotq_laneq_s32(acc[r][j].v, w[j], x[r / 4], r % 4);
    }
    dot_lanes<R, V, r + 1>(acc, w, x);
  }
}

template <int lane, int V>
static inline void dot_input(IVec (&acc)[1][V], const int8x16_t (&w)[V], int8x16_t x) {
  REGARD_UNROLL
  for (int j = 0; j < V; ++j) acc[0][j].v = vdotq_laneq_s32(acc[0][j].v, w[j], x, lane);
}

template <int P>
static inline void load_bytes(const int8_t* w, std::size_t panel_size,
                              int8x16_t (&to)[P * kI8Panel / 4]) {
  REGARD_UNROLL
  for (int p = 0; p < P; ++p) {
    REGARD_UNROLL
    for (int j = 0; j < kI8Panel / 4; ++j) {
      to[p * (kI8Panel / 4) + j] = vld1q_s8(w + p * panel_size + j * 16);
    }
  }
}

template <int R, int P>
static inline void accumulate_i8(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                 int inputs, Prefetch, IVec (&acc)[R][P * kI8Panel / 4]) {
  constexpr int V = P * kI8Panel / 4;
  constexpr int step = 4 * kI8Panel;  // bytes of four inputs of a panel
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int j = 0; j < V; ++j) acc[r][j].v = vdupq_n_s32(0);
  }
  int8x16_t weights[V];
  if constexpr (R == 1) {
    for (int k = 0; k < inputs; k += 16, w += 4 * step) {
      const int8x16_t input = vld1q_s8(x + k);
      load_bytes<P>(w, panel_size, weights);
      dot_input<0>(acc, weights, input);
      load_bytes<P>(w + step, panel_size, weights);
      dot_input<1>(acc, weights, input);
      load_bytes<P>(w + 2 * step, panel_size, weights);
      dot_input<2>(acc, weights, input);
      load_bytes<P>(w + 3 * step, panel_size, weights);
      dot_input<3>(acc, weights, input);
    }
  } else {
    constexpr int stride = pack_stride(R);
    for (int k = 0; k < inputs; k += 4, w += step, x += 4 * stride) {
      int8x16_t input[stride / 4];
      REGARD_UNROLL
      for (int i = 0; i < stride / 4; ++i) input[i] = vld1q_s8(x + 16 * i);
      load_bytes<P>(w, panel_size, weights);
      dot_lanes(acc, weights, input);
    }
  }
}

#include "kernel_ops.h"
#include "kernel_products.h"

constexpr Kernels kTable = make_kernels("neon-dot");

}  // namespace

const Kernels* neon_dot_kernels() { return &kTable; }

}  // namespace regard

#else
namespace regard {
const Kernels* neon_dot_kernels() { return nullptr; }
}  // namespace regard
#endif
