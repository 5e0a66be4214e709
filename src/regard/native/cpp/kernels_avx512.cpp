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

#define REGARD_MASKED
static inline Vec load_some(const float* p, int count, float rest = 0.0f) {
  const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(rest), mask, p)};
}
static inline void store_some(float* p, Vec a, int count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), a.v);
}

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

static inline void store_sums(float* to, Vec a, Vec b, Vec c, Vec d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a.v, b.v), _mm512_unpackhi_ps(a.v, b.v));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c.v, d.v), _mm512_unpackhi_ps(c.v, d.v));
  const __m512 four = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(four), _mm512_extractf32x8_ps(four, 1));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

static inline void store_int8(int8_t* to, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

constexpr int kF32Panel = 32;  // 12 rows × 32 outputs: 24 accumulators of 32 registers
constexpr int kF32Rows = 12;
constexpr int kI8Panel = 32;
constexpr int kI8Rows = 12;
constexpr int kI8Group = 4;
constexpr int kI8Offset = 128;
constexpr int kAccumulators = 14;

constexpr bool kPrefetch = true;
// Bytes to prefetch ahead of the weights of a tile: more rows take longer per byte. Every second
// line suffices, because the CPU fetches lines in pairs.
constexpr int prefetch_distance(int rows) { return rows <= 2 ? 1024 : rows <= 4 ? 2048 : 4096; }
constexpr bool kPackRows = false;
constexpr int pack_stride(int rows) { return rows; }

template <int R, int P>
static inline void accumulate_f32(const float* w, std::size_t panel_size, const float* x,
                                  std::size_t x_stride, int inputs, Prefetch ahead,
                                  Vec (&acc)[R][P * 2]) {
  const char* next = reinterpret_cast<const char*>(w) + ahead.offset;
  for (int k = 0; k < inputs; ++k, w += kF32Panel, ++x, next += ahead.step) {
    prefetch_panels<P>(next, panel_size * sizeof(float));
    Vec weights[P * 2];
    REGARD_UNROLL
    for (int j = 0; j < P * 2; ++j) weights[j] = load(w + j / 2 * panel_size + j % 2 * 16);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec input = set1(x[r * x_stride]);
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

// acc += the dot products of groups of four bytes. As an intrinsic, GCC 12 copies and spills the
// accumulators in every iteration, which makes the product three times as slow.
static inline void add_dot_products(__m512i& acc, __m512i weights, __m512i input) {
#if defined(__GNUC__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(weights), "v"(input));
#else
  acc = _mm512_dpbusd_epi32(acc, weights, input);
#endif
}

template <int R, int P>
static inline void accumulate_i8(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                 int inputs, Prefetch ahead, IVec (&acc)[R][P * 2]) {
  const char* next = reinterpret_cast<const char*>(w) + ahead.offset;
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int j = 0; j < P * 2; ++j) acc[r][j].v = _mm512_setzero_si512();
  }
  for (int k = 0; k < inputs; k += 4, w += 4 * kI8Panel, x += 4 * R, next += ahead.step) {
    prefetch_panels<P>(next, panel_size);
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
        add_dot_products(acc[r][j].v, weights[j], input);
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
