// Kernels in plain C++, for CPUs without any of the other instruction sets.
#include "kernels.h"

namespace regard {
namespace {

struct Vec {
  static constexpr int width = 4;
  float v[4];
};

template <class F>
static inline Vec each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

static inline Vec load(const float* p) {
  return each([p](int i) { return p[i]; });
}
static inline void store(float* p, Vec a) {
  for (int i = 0; i < 4; ++i) p[i] = a.v[i];
}
static inline Vec set1(float x) { return {{x, x, x, x}}; }
static inline Vec add(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
static inline Vec sub(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
static inline Vec mul(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
static inline Vec div(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
static inline Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return a.v[i] + b.v[i] * c.v[i]; });
}
// The comparisons return `a` if a value is NaN, so that exp and others pass it on.
static inline Vec vmax(Vec a, Vec b) {
  return each([&](int i) { return b.v[i] > a.v[i] ? b.v[i] : a.v[i]; });
}
static inline Vec vmin(Vec a, Vec b) {
  return each([&](int i) { return b.v[i] < a.v[i] ? b.v[i] : a.v[i]; });
}
static inline Vec round_even(Vec a) {
  return each([&](int i) { return __builtin_rintf(a.v[i]); });
}
static inline float sum(Vec a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }
static inline float largest(Vec a) {
  const float x = a.v[0] > a.v[1] ? a.v[0] : a.v[1];
  const float y = a.v[2] > a.v[3] ? a.v[2] : a.v[3];
  return x > y ? x : y;
}

static inline void store_sums(float* to, Vec a, Vec b, Vec c, Vec d) {
  to[0] = sum(a);
  to[1] = sum(b);
  to[2] = sum(c);
  to[3] = sum(d);
}

// A whole number as int; anything else (NaN, infinity) as 0, where a plain cast is undefined.
static inline int to_int(float x) { return x > -1e6f && x < 1e6f ? static_cast<int>(x) : 0; }

static inline Vec pow2(Vec n) {
  return each([&](int i) {
    const uint32_t bits = static_cast<uint32_t>(to_int(n.v[i]) + 127) << 23;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
  });
}

static inline void store_int8(int8_t* to, Vec a) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<int8_t>(to_int(a.v[i]));
}

constexpr int kF32Panel = 8;
constexpr int kF32Rows = 4;
constexpr int kI8Panel = 8;
constexpr int kI8Rows = 4;
constexpr int kI8Group = 4;
constexpr int kI8Offset = 0;
constexpr int kAccumulators = 8;
constexpr bool kPrefetch = false;
constexpr int prefetch_distance(int) { return 0; }
constexpr bool kPackRows = false;
constexpr int pack_stride(int rows) { return rows; }

template <int R, int P>
static inline void accumulate_f32(const float* w, std::size_t panel_size, const float* x,
                                  std::size_t x_stride, int inputs, Prefetch,
                                  Vec (&acc)[R][P * kF32Panel / 4]) {
  constexpr int per_panel = kF32Panel / 4;
  for (int k = 0; k < inputs; ++k, w += kF32Panel, ++x) {
    for (int j = 0; j < P * per_panel; ++j) {
      const Vec weights = load(w + j / per_panel * panel_size + j % per_panel * 4);
      for (int r = 0; r < R; ++r) acc[r][j] = fma(acc[r][j], weights, set1(x[r * x_stride]));
    }
  }
}

struct IVec {
  int32_t v[4];
};

static inline Vec to_float(IVec a, int32_t) {
  return each([&](int i) { return static_cast<float>(a.v[i]); });
}

template <int R, int P>
static inline void accumulate_i8(const int8_t* w, std::size_t panel_size, const int8_t* x,
                                 int inputs, Prefetch, IVec (&acc)[R][P * kI8Panel / 4]) {
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < P * kI8Panel / 4; ++j) acc[r][j] = {};
  }
  for (int k = 0; k < inputs; k += 4, w += 4 * kI8Panel, x += 4 * R) {
    for (int column = 0; column < P * kI8Panel; ++column) {
      const int8_t* from = w + column / kI8Panel * panel_size + column % kI8Panel * 4;
      for (int r = 0; r < R; ++r) {
        int32_t total = 0;
        for (int i = 0; i < 4; ++i) total += from[i] * x[4 * r + i];
        acc[r][column / 4].v[column % 4] += total;
      }
    }
  }
}

#include "kernel_ops.h"
#include "kernel_products.h"

constexpr Kernels kTable = make_kernels("plain");

}  // namespace

const Kernels* plain_kernels() { return &kTable; }

}  // namespace regard
