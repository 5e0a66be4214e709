// Kernels for x86 with AVX2 and FMA. int8 products widen to int16, because the 8-bit multiply of
// AVX2 saturates; the sums stay exact.
#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

namespace regard {
namespace {

struct Vec {
  static constexpr int width = 8;
  __m256 v;
};

static inline Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
static inline void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }

#define REGARD_MASKED
static inline __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline Vec load_some(const float* p, int count, float rest = 0.0f) {
  const __m256i mask = first_lanes(count);
  return {_mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(p, mask),
                           _mm256_castsi256_ps(mask))};
}
static inline void store_some(float* p, Vec a, int count) {
  _mm256_maskstore_ps(p, first_lanes(count), a.v);
}

static inline Vec set1(float x) { return {_mm256_set1_ps(x)}; }
static inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
static inline Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
static inline Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
static inline Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
static inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(b.v, c.v, a.v)}; }
// The instructions return their second operand if a value is NaN: it must be `a` to pass NaN on.
static inline Vec vmax(Vec a, Vec b) { return {_mm256_max_ps(b.v, a.v)}; }
static inline Vec vmin(Vec a, Vec b) { return {_mm256_min_ps(b.v, a.v)}; }
static inline Vec round_even(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

static inline Vec pow2(Vec n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
}

static inline float sum(Vec a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}

static inline float largest(Vec a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}

static inline void store_sums(float* to, Vec a, Vec b, Vec c, Vec d) {
  const __m256 four = _mm256_hadd_ps(_mm256_hadd_ps(a.v, b.v), _mm256_hadd_ps(c.v, d.v));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(four), _mm256_extractf128_ps(four, 1)));
}

static inline void store_int8(int8_t* to, Vec a) {
  const __m256i wide = _mm256_cvtps_epi32(a.v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide),
                                        _mm256_extracti128_si256(wide, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
}

constexpr int kF32Panel = 16;  // 6 rows × 16 outputs: 12 accumulators of 16 registers
constexpr int kF32Rows = 6;
constexpr int kI8Panel = 16;
constexpr int kI8Rows = 3;
constexpr int kI8Group = 4;
constexpr int kI8Offset = 0;
constexpr int kAccumulators = 8;
constexpr bool kPrefetch = true;
constexpr int prefetch_distance(int) { return 1024; }
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
    for (int p = 0; p < P; ++p) {
      weights[2 * p] = load(w + p * panel_size);
      weights[2 * p + 1] = load(w + p * panel_size + 8);
    }
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec input = {_mm256_broadcast_ss(x + r * x_stride)};
      REGARD_UNROLL
      for (int j = 0; j < P * 2; ++j) acc[r][j] = fma(acc[r][j], weights[j], input);
    }
  }
}

struct IVec {
  __m256i v;
};

static inline Vec to_float(IVec a, int32_t) { return {_mm256_cvtepi32_ps(a.v)}; }

// Eight outputs × four inputs: `low` and `high` hold two partial sums for each of four outputs.
template <int R, int P>
static inline void accumulate_i8(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                 int inputs, Prefetch ahead, IVec (&acc)[R][P * 2]) {
  __m256i low[R][P * 2], high[R][P * 2];
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int j = 0; j < P * 2; ++j) low[r][j] = high[r][j] = _mm256_setzero_si256();
  }
  const char* next = reinterpret_cast<const char*>(w) + ahead.offset;
  for (int k = 0; k < inputs; k += 4, w += 4 * kI8Panel, x += 4 * R, next += ahead.step) {
    prefetch_panels<P>(next, panel_size);
    __m256i input[R];
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, x + 4 * r, 4);
      input[r] = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
    }
    REGARD_UNROLL
    for (int j = 0; j < P * 2; ++j) {
      const int8_t* from = w + j / 2 * panel_size + j % 2 * 32;
      const __m256i first = _mm256_cvtepi8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
      const __m256i second = _mm256_cvtepi8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16)));
      REGARD_UNROLL
      for (int r = 0; r < R; ++r) {
        low[r][j] = _mm256_add_epi32(low[r][j], _mm256_madd_epi16(first, input[r]));
        high[r][j] = _mm256_add_epi32(high[r][j], _mm256_madd_epi16(second, input[r]));
      }
    }
  }
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int j = 0; j < P * 2; ++j) {  // outputs 0 1 4 5 | 2 3 6 7, then in order
      const __m256i joined = _mm256_hadd_epi32(low[r][j], high[r][j]);
      acc[r][j].v = _mm256_permute4x64_epi64(joined, 0xD8);
    }
  }
}

#include "kernel_ops.h"
#include "kernel_products.h"

constexpr Kernels kTable = make_kernels("avx2");

}  // namespace

const Kernels* avx2_kernels() { return &kTable; }

}  // namespace regard

#else
namespace regard {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace regard
#endif
