// Kernels for any 64-bit ARM CPU: NEON without the dot-product extension.
#include "kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace regard {
namespace {

#include "kernel_neon.h"

constexpr int kI8Panel = 12;
constexpr int kI8Group = 4;
constexpr int kI8Rows = 2;

// Four int8 products per output: widening multiply, pairwise add to int32. `low` and `high` hold
// two partial sums for each of two outputs; they are joined at the end.
template <int R, int P>
static inline void accumulate_i8(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                 int inputs, Prefetch, IVec (&acc)[R][P * kI8Panel / 4]) {
  constexpr int V = P * kI8Panel / 4;
  constexpr int stride = pack_stride(R);
  int32x4_t low[R][V], high[R][V];
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int j = 0; j < V; ++j) low[r][j] = high[r][j] = vdupq_n_s32(0);
  }
  for (int k = 0; k < inputs; k += 4, w += 4 * kI8Panel, x += 4 * stride) {
    int8x8_t input[R];
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, x + 4 * r, 4);
      input[r] = vreinterpret_s8_s32(vdup_n_s32(four));
    }
    REGARD_UNROLL
    for (int j = 0; j < V; ++j) {
      constexpr int per_panel = kI8Panel / 4;
      const int8x16_t weights = vld1q_s8(w + (j / per_panel) * panel_size + j % per_panel * 16);
      REGARD_UNROLL
      for (int r = 0; r < R; ++r) {
        low[r][j] = vpadalq_s16(low[r][j], vmull_s8(vget_low_s8(weights), input[r]));
        high[r][j] = vpadalq_s16(high[r][j], vmull_s8(vget_high_s8(weights), input[r]));
      }
    }
  }
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int j = 0; j < V; ++j) acc[r][j].v = vpaddq_s32(low[r][j], high[r][j]);
  }
}

#include "kernel_ops.h"
#include "kernel_products.h"

constexpr Kernels kTable = make_kernels("neon");

}  // namespace

const Kernels* neon_kernels() { return &kTable; }

}  // namespace regard

#else
namespace regard {
const Kernels* neon_kernels() { return nullptr; }
}  // namespace regard
#endif
