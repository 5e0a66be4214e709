// NEON vectors and float32 products, shared by the kernel files for ARM.

struct Vec {
  static constexpr int width = 4;
  float32x4_t v;
};

static inline Vec load(const float* p) { return {vld1q_f32(p)}; }
static inline void store(float* p, Vec a) { vst1q_f32(p, a.v); }
static inline Vec set1(float x) { return {vdupq_n_f32(x)}; }
static inline Vec add(Vec a, Vec b) { return {vaddq_f32(a.v, b.v)}; }
static inline Vec sub(Vec a, Vec b) { return {vsubq_f32(a.v, b.v)}; }
static inline Vec mul(Vec a, Vec b) { return {vmulq_f32(a.v, b.v)}; }
static inline Vec div(Vec a, Vec b) { return {vdivq_f32(a.v, b.v)}; }
static inline Vec fma(Vec a, Vec b, Vec c) { return {vfmaq_f32(a.v, b.v, c.v)}; }
static inline Vec vmax(Vec a, Vec b) { return {vmaxq_f32(a.v, b.v)}; }
static inline Vec vmin(Vec a, Vec b) { return {vminq_f32(a.v, b.v)}; }
static inline Vec round_even(Vec a) { return {vrndnq_f32(a.v)}; }
static inline float sum(Vec a) { return vaddvq_f32(a.v); }
static inline float largest(Vec a) { return vmaxvq_f32(a.v); }

static inline void store_sums(float* to, Vec a, Vec b, Vec c, Vec d) {
  vst1q_f32(to, vpaddq_f32(vpaddq_f32(a.v, b.v), vpaddq_f32(c.v, d.v)));
}

static inline Vec pow2(Vec n) {
  const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n.v), vdupq_n_s32(127));
  return {vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23))};
}

static inline void store_int8(int8_t* to, Vec a) {
  const int16x4_t narrow = vqmovn_s32(vcvtq_s32_f32(a.v));
  const int8x8_t bytes = vqmovn_s16(vcombine_s16(narrow, narrow));
  vst1_lane_s32(reinterpret_cast<int32_t*>(to), vreinterpret_s32_s8(bytes), 0);
}

constexpr int kF32Panel = 12;  // 8 rows × 12 outputs: 24 accumulators of 32 registers
constexpr int kF32Rows = 8;
constexpr int kAccumulators = 8;

constexpr bool kPrefetch = false;
constexpr int prefetch_distance(int) { return 0; }
// Packed rows are read in whole vectors of four.
constexpr bool kPackRows = true;
constexpr int pack_stride(int rows) { return rows == 1 ? 1 : (rows + 3) / 4 * 4; }

// acc[r][j] += w[j] · x[r] for rows r, r + 1 … R − 1, which are lanes of x.
template <int R, int V, int r = 0>
static inline void fma_lanes(Vec (&acc)[R][V], const float32x4_t (&w)[V], const float32x4_t* x) {
  if constexpr (r < R) {
    REGARD_UNROLL
    for (int j = 0; j < V; ++j) {
      acc[r][j].v = vfmaq_laneq_f32(acc[r][j].v, w[j], x[r / 4], r % 4);
    }
    fma_lanes<R, V, r + 1>(acc, w, x);
  }
}

// The same for one row and one input, which is lane `lane` of x.
template <int lane, int V>
static inline void fma_input(Vec (&acc)[1][V], const float32x4_t (&w)[V], float32x4_t x) {
  REGARD_UNROLL
  for (int j = 0; j < V; ++j) acc[0][j].v = vfmaq_laneq_f32(acc[0][j].v, w[j], x, lane);
}

template <int P>
static inline void load_weights(const float* w, std::size_t panel_size,
                                float32x4_t (&to)[P * kF32Panel / 4]) {
  REGARD_UNROLL
  for (int p = 0; p < P; ++p) {
    REGARD_UNROLL
    for (int j = 0; j < kF32Panel / 4; ++j) {
      to[p * (kF32Panel / 4) + j] = vld1q_f32(w + p * panel_size + j * 4);
    }
  }
}

template <int R, int P>
static inline void accumulate_f32(const float* w, std::size_t panel_size, const float* x,
                                  std::size_t, int inputs, Prefetch,
                                  Vec (&acc)[R][P * kF32Panel / 4]) {
  constexpr int V = P * kF32Panel / 4;
  float32x4_t weights[V];
  if constexpr (R == 1) {
    int k = 0;
    for (; k + 4 <= inputs; k += 4, w += 4 * kF32Panel) {
      const float32x4_t input = vld1q_f32(x + k);
      load_weights<P>(w, panel_size, weights);
      fma_input<0>(acc, weights, input);
      load_weights<P>(w + kF32Panel, panel_size, weights);
      fma_input<1>(acc, weights, input);
      load_weights<P>(w + 2 * kF32Panel, panel_size, weights);
      fma_input<2>(acc, weights, input);
      load_weights<P>(w + 3 * kF32Panel, panel_size, weights);
      fma_input<3>(acc, weights, input);
    }
    for (; k < inputs; ++k, w += kF32Panel) {
      load_weights<P>(w, panel_size, weights);
      fma_input<0>(acc, weights, vdupq_n_f32(x[k]));
    }
  } else {
    constexpr int stride = pack_stride(R);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 2
#endif
    for (int k = 0; k < inputs; ++k, w += kF32Panel, x += stride) {
      float32x4_t input[stride / 4];
      REGARD_UNROLL
      for (int i = 0; i < stride / 4; ++i) input[i] = vld1q_f32(x + 4 * i);
      load_weights<P>(w, panel_size, weights);
      fma_lanes(acc, weights, input);
    }
  }
}

struct IVec {
  int32x4_t v;
};

static inline Vec to_float(IVec a, int32_t) { return {vcvtq_f32_s32(a.v)}; }

constexpr int kI8Offset = 0;
