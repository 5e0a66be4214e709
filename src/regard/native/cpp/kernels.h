// Kernels: the inner loops of the engine, one table of functions per instruction set.
//
// Every sum has one fixed order that depends only on its own row, never on the number of rows or
// threads. Outputs are therefore independent of the batch.
#pragma once

#include <cstddef>
#include <cstdint>

// Unroll the loop that follows, so that arrays indexed by its variable live in registers.
#if defined(REGARD_UNROLL)  // set by a build that is not meant to be fast
#elif defined(__clang__)
#define REGARD_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define REGARD_UNROLL _Pragma("GCC unroll 64")
#else
#define REGARD_UNROLL
#endif

namespace regard {

// Rows of a matrix product are multiplied in blocks of at most this many …
constexpr int kRowBlock = 192;
// … and of at most this many values, which stay in the cache while all weights pass.
constexpr int kBlockValues = 131072;
// Most rows of a tile of any instruction set.
constexpr int kMostTileRows = 12;
// Values between rows that are copied further apart.
constexpr int kRowGap = 16;

// Inputs of an int8 product are padded to a multiple of this, so that inner loops need no tail.
constexpr int kInt8Depth = 16;

// Float buffers that kernels read in whole vectors are padded to a multiple of this.
constexpr int kVectorPadding = 16;

// y = W x + b in float32. Panel p holds outputs p·n … p·n + n − 1 (n = Kernels::f32_panel) as
// [input][output of the panel]. Weights and bias of missing outputs are zero.
struct F32Matrix {
  const float* weights;
  const float* bias;
  int inputs;
  int outputs;
};

// y = scale · (W x) + b with int8 weights, as [input / g][output of the panel][input % g]
// (g = Kernels::i8_group: the inputs that one instruction multiplies and adds).
// Weights are stored plus Kernels::i8_offset (128 where the instruction needs unsigned weights).
struct I8Matrix {
  const int8_t* weights;
  const float* scales;
  const float* bias;
  int inputs;
  int padded_inputs;
  int outputs;
};

// The rows of a product: row r of the input starts at x + r · x_stride. With `add`, the result is
// added to y.
struct Rows {
  const float* x;
  std::size_t x_stride;
  float* y;
  std::size_t y_stride;
  int count;
  bool add;
};

// One query of scaled dot-product attention over `count` keys. Key t is at rows[t] + key_offset,
// its value at rows[t] + value_offset. `bias` (may be null) is added to the scaled scores.
// `weights` receives the attention weights: room for `count` rounded up to kVectorPadding.
struct Query {
  const float* query;
  const float* const* rows;
  std::size_t key_offset;
  std::size_t value_offset;
  int count;
  int dim;
  float scale;
  const float* bias;
  float* weights;
  float* context;
};

// What a tile of a product prefetches: from `offset` bytes after its own weights, `step` bytes
// further with each input (int8: with each four).
struct Prefetch {
  std::size_t offset;
  std::size_t step;
};

// Fetch the same line of each of P panels into the second cache.
template <int P>
static inline void prefetch_panels(const char* from, std::size_t panel_bytes) {
  REGARD_UNROLL
  for (int p = 0; p < P; ++p) {
    __builtin_prefetch(from + static_cast<std::size_t>(p) * panel_bytes, 0, 2);
  }
}

struct Kernels {
  const char* name;
  int f32_panel;
  int i8_panel;
  int i8_group;
  int i8_offset;
  // Matrix products. `scratch` has scratch_bytes(inputs) bytes, aligned to 64.
  void (*multiply_f32)(const F32Matrix&, const Rows&, void* scratch);
  void (*multiply_i8)(const I8Matrix&, const Rows&, void* scratch);
  // LayerNorm, or RMSNorm where beta is null; `to` may equal `from`.
  void (*norm)(const float* from, float* to, int rows, int width, const float* gamma,
               const float* beta, float eps);
  void (*relu)(float* x, std::size_t count);
  void (*gelu)(float* x, std::size_t count);
  void (*gelu_tanh)(float* x, std::size_t count);
  void (*silu)(float* x, std::size_t count);
  // silu(a) ⊙ b and gelu_tanh(a) ⊙ b for a row [a, b] of two halves; the result replaces a.
  void (*swiglu)(float* row, int half);
  void (*geglu)(float* row, int half);
  void (*sigmoid)(float* x, std::size_t count);
  void (*tanh)(float* x, std::size_t count);
  float (*dot)(const float* a, const float* b, int count);
  // Σ v[i] · tanh(a[i] + b[i]): the additive score.
  float (*additive_score)(const float* v, const float* a, const float* b, int count);
  void (*attend)(const Query&);
  // Softmax of scores in place (the buffer is padded like Query::weights).
  void (*softmax)(float* scores, int count);
  // to += weight · from
  void (*add_scaled)(float* to, const float* from, float weight, int count);
  // The maximum of a row and log Σ exp(x − maximum).
  void (*log_sum_exp)(const float* x, int count, float* maximum, float* log_sum);
};

// Rows of a block of a product with this many inputs.
static constexpr int block_rows(int inputs) {
  const int fitting = kBlockValues / (inputs > 0 ? inputs : 1);
  return fitting > kRowBlock ? kRowBlock : fitting < kMostTileRows ? kMostTileRows : fitting;
}

// Bytes of scratch memory that a product with this many inputs needs: the packed rows of a block,
// whose tiles are rounded up by at most 16 rows in all, with a gap after each, and two numbers per
// row.
static constexpr std::size_t scratch_bytes(int inputs) {
  const std::size_t padded = (static_cast<std::size_t>(inputs) + 63) / 64 * 64 + kRowGap;
  const std::size_t rows = static_cast<std::size_t>(block_rows(inputs)) + 16;
  return (rows * padded + 2 * kRowBlock) * sizeof(float);
}

// The tables of all instruction sets that were compiled in; null where the CPU lacks one.
const Kernels* plain_kernels();
const Kernels* neon_kernels();
const Kernels* neon_dot_kernels();
const Kernels* neon_i8mm_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

// The kernels of that name, or the fastest for this CPU where the name is empty; null if there
// are none of that name.
const Kernels* find_kernels(const char* name);

// Name of the i-th available table, fastest first; null beyond the last.
const char* kernel_name(int index);

// Compares every available table with simple loops in double precision or exact integers.
// Returns the number of failures and writes one line per failure.
int test_kernels(char* report, std::size_t size);

}  // namespace regard
