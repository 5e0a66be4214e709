// Kernels for x86 with AVX-512 and VNNI (vpdpbusd adds four products of unsigned and signed
// bytes). Weights are stored plus 128, which makes them unsigned; the sums are corrected exactly.
#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the undefined operands inside its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace regard {
namespace {

struct Vec {
  static constexpr int width = 16;
  __m512 v;
};

static inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
static inline Vec set1(float x) { return {_mm512_set1_ps(x)}; }
static inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(b.v, c.v, a.v)}; }
// The instructions return their second operand if a value is NaN: it must be `a` to pass NaN on.
static inline Vec vmax(Vec a, Vec b) { return {_mm512_max_ps(b.v, a.v)}; }
static inline Vec vmin(Vec a, Vec b) { return {_mm512_min_ps(b.v, a.v)}; }
static inline Vec round_even(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

static inline Vec pow2(Vec n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

static inline float sum(Vec a) { return _mm512_reduce_add_ps(a.v); }
static inline float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }

static inline void store_int8(int8_t* to, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

constexpr int kF32Panel = 32;  // 12 rows × 32 outputs: 24 accumulators of 32 registers
constexpr int kF32Rows = 12;
constexpr int kI8Panel = 32;
constexpr int kI8Rows = 12;
constexpr int kI8Offset = 128;
constexpr int pack_stride(int rows) { return rows; }

template <int R, int P>
static inline void accumulate_f32(const float* w, std::size_t panel_size, const float* x,
                                  int inputs, Vec (&acc)[R][P * 2]) {
  for (int k = 0; k < inputs; ++k, w += kF32Panel, x += R) {
    Vec weights[P * 2];
    REGARD_UNROLL
    for (int p = 0; p < P; ++p) {
      weights[2 * p] = load(w + p * panel_size);
      weights[2 * p + 1] = load(w + p * panel_size + 16);
    }
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec input = set1(x[r]);
      REGARD_UNROLL
      for (int j = 0; j < P * 2; ++j) acc[r][j] = fma(acc[r][j], weights[j], input);
    }
  }
}

struct IVec {
  __m512i v;
};

static inline Vec to_float(IVec a, int32_t correction) {
  return {_mm512_cvtepi32_ps(_mm512_sub_epi32(a.v, _mm512_set1_epi32(correction)))};
}

template <int R, int P>
static inline void accumulate_i8(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                 int inputs, IVec (&acc)[R][P * 2]) {
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int j = 0; j < P * 2; ++j) acc[r][j].v = _mm512_setzero_si512();
  }
  for (int k = 0; k < inputs; k += 4, w += 4 * kI8Panel, x += 4 * R) {
    __m512i weights[P * 2];
    REGARD_UNROLL
    for (int j = 0; j < P * 2; ++j) {
      weights[j] = _mm512_loadu_si512(w + j / 2 * panel_size + j % 2 * 64);
    }
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, x + 4 * r, 4);
      const __m512i input = _mm512_set1_epi32(four);
      REGARD_UNROLL
      for (int j = 0; j < P * 2; ++j) {
        acc[r][j].v = _mm512_dpbusd_epi32(acc[r][j].v, weights[j], input);
      }
    }
  }
}

#include "kernel_ops.h"
#include "kernel_products.h"

constexpr Kernels kTable = make_kernels("avx512-vnni");

}  // namespace

const Kernels* avx512_kernels() { return &kTable; }

}  // namespace regard

#else
namespace regard {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace regard
#endif
