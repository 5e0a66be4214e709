// Vector operations shared by all instruction sets.
//
// A kernel file defines the type `Vec` and its functions in an anonymous namespace and then
// includes this file there. Everything has internal linkage: the linker must never replace a
// function of one instruction set by the same function compiled for another. For the same reason
// kernel files use no templates or inline functions of the standard library.
//
// Vec functions: load, store, set1, add, sub, mul, div, fma(a, b, c) = a + b · c, vmax, vmin,
// round_even, pow2 (of whole numbers), sum, largest, store_sums (the sums of four vectors).
// Vec::width floats each.

// ---- loads and stores of fewer than a whole vector -------------------------------------------

#if !defined(REGARD_MASKED)  // kernel files whose instruction set has masks define these
// The first `count` values; the others are `rest`.
static inline Vec load_some(const float* p, int count, float rest = 0.0f) {
  alignas(64) float buffer[Vec::width];
  for (int i = 0; i < Vec::width; ++i) buffer[i] = i < count ? p[i] : rest;
  return load(buffer);
}

static inline void store_some(float* p, Vec v, int count) {
  alignas(64) float buffer[Vec::width];
  store(buffer, v);
  for (int i = 0; i < count; ++i) p[i] = buffer[i];
}
#endif

// Replace each value x of an array by f(x).
template <class F>
static inline void map_array(float* x, std::size_t count, F f) {
  std::size_t i = 0;
  for (; i + Vec::width <= count; i += Vec::width) store(x + i, f(load(x + i)));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) store_some(x + i, f(load_some(x + i, rest)), rest);
}

// ---- functions -------------------------------------------------------------------------------

// exp(x): 2^n · exp(r) with |r| ≤ ln 2 / 2 and a polynomial of degree 6 (about 1 ulp).
// Below −87 the result is 0 up to rounding; NaN stays NaN where the instruction set keeps it.
static inline Vec vexp(Vec x) {
  x = vmax(vmin(x, set1(88.0f)), set1(-87.0f));
  const Vec n = round_even(mul(x, set1(1.44269504088896f)));
  Vec r = fma(x, n, set1(-0.693359375f));
  r = fma(r, n, set1(2.12194440e-4f));
  Vec p = set1(1.9875691500e-4f);
  p = fma(set1(1.3981999507e-3f), p, r);
  p = fma(set1(8.3334519073e-3f), p, r);
  p = fma(set1(4.1665795894e-2f), p, r);
  p = fma(set1(1.6666665459e-1f), p, r);
  p = fma(set1(5.0000001201e-1f), p, r);
  p = fma(add(r, set1(1.0f)), p, mul(r, r));
  return mul(p, pow2(n));
}

static inline Vec vsigmoid(Vec x) {
  const Vec one = set1(1.0f);
  return div(one, add(one, vexp(sub(set1(0.0f), x))));
}

// tanh(x) = 1 − 2 / (exp(2x) + 1)
static inline Vec vtanh(Vec x) {
  const Vec one = set1(1.0f);
  return sub(one, div(set1(2.0f), add(vexp(add(x, x)), one)));
}

static inline Vec vsilu(Vec x) { return mul(x, vsigmoid(x)); }

// ½ x (1 + tanh(u)) = x · σ(2u) with u = √(2/π) (x + 0.044715 x³)
static inline Vec vgelu_tanh(Vec x) {
  const Vec cubic = fma(x, mul(x, set1(0.044715f)), mul(x, x));
  return mul(x, vsigmoid(mul(cubic, set1(1.5957691216057308f))));
}

// x · Φ(x), with erf by Abramowitz & Stegun 7.1.26 (absolute error 1.5e-7).
static inline Vec vgelu(Vec x) {
  const Vec one = set1(1.0f);
  const Vec z = mul(x, set1(0.70710678118654752f));
  const Vec magnitude = vmax(z, sub(set1(0.0f), z));
  const Vec t = div(one, fma(one, magnitude, set1(0.3275911f)));
  Vec p = set1(1.061405429f);
  p = fma(set1(-1.453152027f), p, t);
  p = fma(set1(1.421413741f), p, t);
  p = fma(set1(-0.284496736f), p, t);
  p = fma(set1(0.254829592f), p, t);
  const Vec tail = mul(mul(p, t), vexp(sub(set1(0.0f), mul(z, z))));  // 1 − erf(|z|)
  // Φ(x) = 1 − tail / 2 for x ≥ 0, and tail / 2 for x < 0: x · Φ(x) = max(x, 0) − |x| · tail / 2.
  const Vec size = vmax(x, sub(set1(0.0f), x));
  return sub(vmax(x, set1(0.0f)), mul(mul(size, tail), set1(0.5f)));
}

static void op_relu(float* x, std::size_t count) {
  map_array(x, count, [](Vec v) { return vmax(v, set1(0.0f)); });
}

static void op_gelu(float* x, std::size_t count) {
  map_array(x, count, [](Vec v) { return vgelu(v); });
}

static void op_gelu_tanh(float* x, std::size_t count) {
  map_array(x, count, [](Vec v) { return vgelu_tanh(v); });
}

static void op_silu(float* x, std::size_t count) {
  map_array(x, count, [](Vec v) { return vsilu(v); });
}

static void op_sigmoid(float* x, std::size_t count) {
  map_array(x, count, [](Vec v) { return vsigmoid(v); });
}

static void op_tanh(float* x, std::size_t count) {
  map_array(x, count, [](Vec v) { return vtanh(v); });
}

template <class F>
static inline void gate_row(float* row, int half, F function) {
  const float* gated = row + half;
  int i = 0;
  for (; i + Vec::width <= half; i += Vec::width) {
    store(row + i, mul(function(load(row + i)), load(gated + i)));
  }
  if (const int rest = half - i; rest > 0) {
    store_some(row + i, mul(function(load_some(row + i, rest)), load_some(gated + i, rest)), rest);
  }
}

static void op_swiglu(float* row, int half) {
  gate_row(row, half, [](Vec v) { return vsilu(v); });
}

static void op_geglu(float* row, int half) {
  gate_row(row, half, [](Vec v) { return vgelu_tanh(v); });
}

// ---- sums ------------------------------------------------------------------------------------

static inline Vec vdot(const float* a, const float* b, int count) {
  Vec total = set1(0.0f);
  int i = 0;
  for (; i + Vec::width <= count; i += Vec::width) total = fma(total, load(a + i), load(b + i));
  if (const int rest = count - i; rest > 0) {
    total = fma(total, load_some(a + i, rest), load_some(b + i, rest));
  }
  return total;
}

static float op_dot(const float* a, const float* b, int count) { return sum(vdot(a, b, count)); }

static float op_additive_score(const float* v, const float* a, const float* b, int count) {
  Vec total = set1(0.0f);
  int i = 0;
  for (; i + Vec::width <= count; i += Vec::width) {
    total = fma(total, load(v + i), vtanh(add(load(a + i), load(b + i))));
  }
  if (const int rest = count - i; rest > 0) {
    const Vec hidden = vtanh(add(load_some(a + i, rest), load_some(b + i, rest)));
    total = fma(total, load_some(v + i, rest), hidden);
  }
  return sum(total);
}

static void op_add_scaled(float* to, const float* from, float weight, int count) {
  const Vec w = set1(weight);
  int i = 0;
  for (; i + Vec::width <= count; i += Vec::width) {
    store(to + i, fma(load(to + i), load(from + i), w));
  }
  for (; i < count; ++i) to[i] += weight * from[i];
}

static void op_norm(const float* from, float* to, int rows, int width, const float* gamma,
                    const float* beta, float eps) {
  const int whole = width / Vec::width * Vec::width;
  const int rest = width - whole;
  for (int r = 0; r < rows; ++r, from += width, to += width) {
    float mean = 0.0f;
    if (beta != nullptr) {
      Vec total = set1(0.0f);
      for (int i = 0; i < whole; i += Vec::width) total = add(total, load(from + i));
      if (rest > 0) total = add(total, load_some(from + whole, rest));
      mean = sum(total) / static_cast<float>(width);
    }
    const Vec centre = set1(mean);
    Vec squares = set1(0.0f);
    for (int i = 0; i < whole; i += Vec::width) {
      const Vec d = sub(load(from + i), centre);
      squares = fma(squares, d, d);
    }
    float variance = sum(squares);
    for (int i = whole; i < width; ++i) variance += (from[i] - mean) * (from[i] - mean);
    const float inverse = 1.0f / __builtin_sqrtf(variance / static_cast<float>(width) + eps);
    const Vec scale = set1(inverse);
    for (int i = 0; i < whole; i += Vec::width) {
      const Vec unit = mul(sub(load(from + i), centre), scale);
      const Vec scaled = mul(unit, load(gamma + i));
      store(to + i, beta == nullptr ? scaled : add(scaled, load(beta + i)));
    }
    for (int i = whole; i < width; ++i) {
      to[i] = (from[i] - mean) * inverse * gamma[i] + (beta == nullptr ? 0.0f : beta[i]);
    }
  }
}

// ---- softmax and attention -------------------------------------------------------------------

// softmax(scale · scores + bias) in place. Values beyond `count` become tiny, not zero.
static inline void softmax(float* scores, int count, float scale, const float* bias) {
  const Vec factor = set1(scale);
  Vec top = set1(-__builtin_inff());
  for (int i = 0; i < count; i += Vec::width) {
    const int left = count - i;
    Vec v = left >= Vec::width ? load(scores + i) : load_some(scores + i, left);
    v = mul(v, factor);
    if (bias != nullptr) {
      v = add(v, left >= Vec::width ? load(bias + i) : load_some(bias + i, left));
    }
    store(scores + i, v);
    if (left < Vec::width) v = load_some(scores + i, left, -__builtin_inff());
    top = vmax(v, top);  // NaN stays
  }
  const Vec shift = set1(largest(top));
  Vec total = set1(0.0f);
  for (int i = 0; i < count; i += Vec::width) {
    const int left = count - i;
    const Vec v = left >= Vec::width ? load(scores + i)
                                     : load_some(scores + i, left, -__builtin_inff());
    const Vec e = vexp(sub(v, shift));
    total = add(total, e);
    store(scores + i, e);
  }
  const Vec inverse = set1(1.0f / sum(total));
  for (int i = 0; i < count; i += Vec::width) store(scores + i, mul(load(scores + i), inverse));
}

static void op_softmax(float* scores, int count) { softmax(scores, count, 1.0f, nullptr); }

// Σ weights[t] · value[t] for `parts` vectors of the context from `at` on. Even and odd keys are
// summed separately, which hides the latency of the sums.
template <int parts>
static inline void weigh_values(const Query& q, int at) {
  Vec even[parts], odd[parts];
  REGARD_UNROLL
  for (int j = 0; j < parts; ++j) even[j] = odd[j] = set1(0.0f);
  const std::size_t offset = q.value_offset + static_cast<std::size_t>(at);
  int t = 0;
  for (; t + 2 <= q.count; t += 2) {
    const float* first = q.rows[t] + offset;
    const float* second = q.rows[t + 1] + offset;
    const Vec w1 = set1(q.weights[t]), w2 = set1(q.weights[t + 1]);
    REGARD_UNROLL
    for (int j = 0; j < parts; ++j) {
      even[j] = fma(even[j], load(first + j * Vec::width), w1);
      odd[j] = fma(odd[j], load(second + j * Vec::width), w2);
    }
  }
  if (t < q.count) {
    const Vec weight = set1(q.weights[t]);
    REGARD_UNROLL
    for (int j = 0; j < parts; ++j) {
      even[j] = fma(even[j], load(q.rows[t] + offset + j * Vec::width), weight);
    }
  }
  REGARD_UNROLL
  for (int j = 0; j < parts; ++j) store(q.context + at + j * Vec::width, add(even[j], odd[j]));
}

static void op_attend(const Query& q) {
  const int whole = q.dim / Vec::width * Vec::width;
  int t = 0;
  for (; whole == q.dim && t + 4 <= q.count; t += 4) {  // four keys at once: independent sums
    const float* k0 = q.rows[t] + q.key_offset;
    const float* k1 = q.rows[t + 1] + q.key_offset;
    const float* k2 = q.rows[t + 2] + q.key_offset;
    const float* k3 = q.rows[t + 3] + q.key_offset;
    Vec s0 = set1(0.0f), s1 = set1(0.0f), s2 = set1(0.0f), s3 = set1(0.0f);
    for (int i = 0; i < whole; i += Vec::width) {
      const Vec x = load(q.query + i);
      s0 = fma(s0, x, load(k0 + i));
      s1 = fma(s1, x, load(k1 + i));
      s2 = fma(s2, x, load(k2 + i));
      s3 = fma(s3, x, load(k3 + i));
    }
    store_sums(q.weights + t, s0, s1, s2, s3);
  }
  for (; t < q.count; ++t) {
    q.weights[t] = sum(vdot(q.query, q.rows[t] + q.key_offset, q.dim));
  }
  softmax(q.weights, q.count, q.scale, q.bias);
  int at = 0;
  for (; at + 4 * Vec::width <= q.dim; at += 4 * Vec::width) weigh_values<4>(q, at);
  for (; at + 2 * Vec::width <= q.dim; at += 2 * Vec::width) weigh_values<2>(q, at);
  for (; at + Vec::width <= q.dim; at += Vec::width) weigh_values<1>(q, at);
  for (; at < q.dim; ++at) {
    float total = 0.0f;
    for (int key = 0; key < q.count; ++key) {
      total += q.rows[key][q.value_offset + at] * q.weights[key];
    }
    q.context[at] = total;
  }
}

static void op_log_sum_exp(const float* x, int count, float* maximum, float* log_sum) {
  float top = x[0];
  int i = 0;
  if (count >= Vec::width) {
    Vec best = load(x);
    for (i = Vec::width; i + Vec::width <= count; i += Vec::width) best = vmax(best, load(x + i));
    top = largest(best);
  }
  for (; i < count; ++i) top = x[i] > top ? x[i] : top;
  const Vec shift = set1(top);
  Vec total = set1(0.0f);
  for (i = 0; i + Vec::width <= count; i += Vec::width) {
    total = add(total, vexp(sub(load(x + i), shift)));
  }
  float rest = 0.0f;
  for (; i < count; ++i) rest += __builtin_expf(x[i] - top);
  *maximum = top;
  *log_sum = __builtin_logf(sum(total) + rest);
}
