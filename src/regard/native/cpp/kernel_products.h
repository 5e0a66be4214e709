// Matrix products, shared by all instruction sets; included after kernel_ops.h, in the same way.
//
// A product is computed in tiles of R rows × P panels. Each value is one accumulator that adds its
// products in the order of the inputs, whatever R and P are, so all tiles give the same numbers.
//
// A kernel file defines beforehand:
//   kF32Panel, kF32Rows, kI8Panel, kI8Rows   panel width and most rows of a tile
//   kI8Group                                 int8 inputs stored together, a multiple of 4
//   kI8Offset                                what is added to stored int8 weights (0 or 128)
//   kAccumulators                            sums of a tile that hide the latency of a product
//   kPackRows                                whether float32 rows are packed as x[input][row]
//   pack_stride(R)                           rows between packed inputs
//   kPrefetch                                whether weights are prefetched
//   prefetch_distance(R)                     bytes ahead that a product of one tile prefetches
//   IVec                                     Vec::width int32 sums
//   accumulate_f32<R, P>(w, panel_size, x, x_stride, inputs, ahead, acc)
//   accumulate_i8<R, P>(w, panel_size, x, inputs, ahead, acc)
//                                            x_stride: of unpacked rows; ahead: what to prefetch
//   to_float(IVec, int32 correction), store_int8(int8*, Vec)

constexpr int kF32Vectors = kF32Panel / Vec::width;
constexpr int kI8Vectors = kI8Panel / Vec::width;

// The tiles of a block, and how the panels of a matrix pass them.
struct Passes {
  int tiles;
  std::size_t line;   // bytes of a panel that a tile reads for each input (int8: for each four)
  std::size_t panel;  // bytes of a panel
  int panels;

  // Panels that pass all tiles together: all of them where there is only one tile. With
  // prefetching, they and the next group stay in the cache beside the rows.
  int group() const {
    constexpr std::size_t most = 128 * 1024;
    if (tiles == 1) return panels;
    if (!kPrefetch) return 4;
    return panel < most ? static_cast<int>(most / panel) : 1;
  }

  // A single tile prefetches its own weights. Of several, each prefetches its share of the next
  // group: memory is slower than one tile, but not than all of them.
  Prefetch ahead(int tile, int rows) const {
    if (tiles == 1) return {static_cast<std::size_t>(prefetch_distance(rows)), line};
    const std::size_t count = static_cast<std::size_t>(tiles);
    const std::size_t next = static_cast<std::size_t>(group()) * panel;
    return {next + static_cast<std::size_t>(tile) * (panel / count), line / count};
  }
};

// Panels per tile: independent accumulators hide the latency of a product.
constexpr int panels_at_once(int rows, int vectors) {
  const int wanted = (kAccumulators + rows * vectors - 1) / (rows * vectors);
  return wanted > 4 ? 4 : wanted;
}

// The next rows of a product: tiles of about equal size, so that none is small and slow.
static int tile_rows(int left, int most) {
  const int tiles = (left + most - 1) / most;
  return (left + tiles - 1) / tiles;
}

// Write panel p of a tile where `left` columns remain; with `add_to`, add to what is there.
template <int V, int R, int all>
static inline void write_panel(const Vec (&tile)[R][all], int p, float* y, std::size_t stride,
                               int left, bool add_to) {
  if (left >= V * Vec::width && !add_to) {
    REGARD_UNROLL
    for (int r = 0; r < R; ++r, y += stride) {
      REGARD_UNROLL
      for (int j = 0; j < V; ++j) store(y + j * Vec::width, tile[r][p * V + j]);
    }
  } else if (left >= V * Vec::width) {
    REGARD_UNROLL
    for (int r = 0; r < R; ++r, y += stride) {
      REGARD_UNROLL
      for (int j = 0; j < V; ++j) {
        store(y + j * Vec::width, add(load(y + j * Vec::width), tile[r][p * V + j]));
      }
    }
  } else {
    float row[V * Vec::width];
    REGARD_UNROLL
    for (int r = 0; r < R; ++r, y += stride) {
      REGARD_UNROLL
      for (int j = 0; j < V; ++j) store(row + j * Vec::width, tile[r][p * V + j]);
      for (int i = 0; i < left; ++i) y[i] = add_to ? y[i] + row[i] : row[i];
    }
  }
}

// ---- float32 ---------------------------------------------------------------------------------

// R rows × P panels, which are `spread` panels apart.
template <int R, int P>
static void f32_tile(const F32Matrix& m, int panel, int spread, const float* x,
                     std::size_t x_stride, Prefetch ahead, float* y, std::size_t stride,
                     bool add_to) {
  const std::size_t panel_size = static_cast<std::size_t>(m.inputs) * kF32Panel;
  Vec acc[R][P * kF32Vectors];
  REGARD_UNROLL
  for (int p = 0; p < P; ++p) {
    const float* bias = m.bias + (panel + p * spread) * kF32Panel;
    REGARD_UNROLL
    for (int j = 0; j < kF32Vectors; ++j) {
      REGARD_UNROLL
      for (int r = 0; r < R; ++r) acc[r][p * kF32Vectors + j] = load(bias + j * Vec::width);
    }
  }
  accumulate_f32<R, P>(m.weights + panel_size * static_cast<std::size_t>(panel),
                       panel_size * static_cast<std::size_t>(spread), x, x_stride, m.inputs, ahead,
                       acc);
  REGARD_UNROLL
  for (int p = 0; p < P; ++p) {
    const int column = (panel + p * spread) * kF32Panel;
    write_panel<kF32Vectors>(acc, p, y + column, stride, m.outputs - column, add_to);
  }
}

// All panels from `panel` to `end` for one tile of R rows. The panels of a tile are far apart, so
// that each is one long stream of memory, which is prefetched beyond the end of the panel.
template <int R>
static void f32_panels(const F32Matrix& m, int panel, int end, const float* x,
                       std::size_t x_stride, Prefetch ahead, float* y, std::size_t stride,
                       bool add_to) {
  constexpr int P = panels_at_once(R, kF32Vectors);
  const int spread = (end - panel) / P;
  for (int i = 0; i < spread; ++i) {
    f32_tile<R, P>(m, panel + i, spread, x, x_stride, ahead, y, stride, add_to);
  }
  for (panel += P * spread; panel < end; ++panel) {
    f32_tile<R, 1>(m, panel, 1, x, x_stride, ahead, y, stride, add_to);
  }
}

template <int R>
static void f32_rows(int rows, const F32Matrix& m, int panel, int end, const float* x,
                     std::size_t x_stride, Prefetch ahead, float* y, std::size_t stride,
                     bool add_to) {
  if constexpr (R > 0) {
    if (rows == R) {
      f32_panels<R>(m, panel, end, x, x_stride, ahead, y, stride, add_to);
    } else {
      f32_rows<R - 1>(rows, m, panel, end, x, x_stride, ahead, y, stride, add_to);
    }
  }
}

// Copy rows to x[input][row], the order in which a tile reads them.
static void pack_rows(const float* x, std::size_t stride, int rows, int inputs, float* packed) {
  const int step = pack_stride(rows);
  for (int r = 0; r < rows; ++r) {
    const float* from = x + static_cast<std::size_t>(r) * stride;
    float* to = packed + r;
    for (int k = 0; k < inputs; ++k) to[static_cast<std::size_t>(k) * step] = from[k];
  }
}

// Rows that are a multiple of 4 kB apart compete for the same few places of the first cache. Copy
// them further apart; returns the new distance.
static std::size_t spread_rows(const float* x, std::size_t stride, int rows, int inputs,
                               float* copy) {
  const std::size_t size = static_cast<std::size_t>(inputs);
  for (int r = 0; r < rows; ++r) {
    const std::size_t row = static_cast<std::size_t>(r);
    __builtin_memcpy(copy + row * (size + kRowGap), x + row * stride, size * sizeof(float));
  }
  return size + kRowGap;
}

static void op_multiply_f32(const F32Matrix& m, const Rows& rows, void* scratch) {
  const int panels = (m.outputs + kF32Panel - 1) / kF32Panel;
  const std::size_t inputs = static_cast<std::size_t>(m.inputs);
  constexpr std::size_t line = kF32Panel * sizeof(float);
  if (rows.count == 1) {
    const Prefetch ahead = Passes{1, line, line * inputs, panels}.ahead(0, 1);
    f32_panels<1>(m, 0, panels, rows.x, rows.x_stride, ahead, rows.y, rows.y_stride, rows.add);
    return;
  }
  float* packed = static_cast<float*>(scratch);
  const int block = block_rows(m.inputs);
  for (int start = 0; start < rows.count; start += block) {
    const int count = rows.count - start < block ? rows.count - start : block;
    const float* x = rows.x + static_cast<std::size_t>(start) * rows.x_stride;
    float* y = rows.y + static_cast<std::size_t>(start) * rows.y_stride;
    const int most = tile_rows(count, kF32Rows);
    const std::size_t tile = inputs * static_cast<std::size_t>(pack_stride(most));
    std::size_t x_stride = rows.x_stride;
    if (!kPackRows && x_stride % 1024 == 0) {
      x_stride = spread_rows(x, x_stride, count, m.inputs, packed);
      x = packed;
    }
    for (int r = 0; kPackRows && r < count; r += most) {
      const int some = count - r < most ? count - r : most;
      pack_rows(x + static_cast<std::size_t>(r) * x_stride, x_stride, some, m.inputs,
                packed + tile * static_cast<std::size_t>(r / most));
    }
    const Passes passes{(count + most - 1) / most, line, line * inputs, panels};
    const int group = passes.group();
    for (int panel = 0; panel < panels; panel += group) {
      const int end = panel + group < panels ? panel + group : panels;
      for (int r = 0; r < count; r += most) {
        const int some = count - r < most ? count - r : most;
        const float* from = kPackRows ? packed + tile * static_cast<std::size_t>(r / most)
                                      : x + static_cast<std::size_t>(r) * x_stride;
        f32_rows<kF32Rows>(some, m, panel, end, from, x_stride, passes.ahead(r / most, some),
                           y + static_cast<std::size_t>(r) * rows.y_stride, rows.y_stride,
                           rows.add);
      }
    }
  }
}

// ---- int8 ------------------------------------------------------------------------------------

// A tile of quantised rows: x[input / g][row][input % g] (g = kI8Group), the scale of each row, and what the
// offset of the weights adds to its sums.
struct QuantisedTile {
  const int8_t* x;
  const float* scales;
  const int32_t* corrections;
};

template <int R, int P>
static void i8_tile(const I8Matrix& m, int panel, int spread, const QuantisedTile& tile,
                    Prefetch ahead, float* y, std::size_t stride, bool add_to) {
  const std::size_t panel_size = static_cast<std::size_t>(m.padded_inputs) * kI8Panel;
  IVec acc[R][P * kI8Vectors];
  accumulate_i8<R, P>(m.weights + panel_size * static_cast<std::size_t>(panel),
                      panel_size * static_cast<std::size_t>(spread), tile.x, m.padded_inputs, ahead,
                      acc);
  REGARD_UNROLL
  for (int p = 0; p < P; ++p) {
    const int column = (panel + p * spread) * kI8Panel;
    Vec values[R][kI8Vectors];
    REGARD_UNROLL
    for (int j = 0; j < kI8Vectors; ++j) {
      const Vec bias = load(m.bias + column + j * Vec::width);
      const Vec scales = load(m.scales + column + j * Vec::width);
      REGARD_UNROLL
      for (int r = 0; r < R; ++r) {
        const Vec total = to_float(acc[r][p * kI8Vectors + j], tile.corrections[r]);
        values[r][j] = fma(bias, total, mul(scales, set1(tile.scales[r])));
      }
    }
    write_panel<kI8Vectors>(values, 0, y + column, stride, m.outputs - column, add_to);
  }
}

template <int R>
static void i8_panels(const I8Matrix& m, int panel, int end, const QuantisedTile& tile,
                      Prefetch ahead, float* y, std::size_t stride, bool add_to) {
  constexpr int P = panels_at_once(R, kI8Vectors);
  const int spread = (end - panel) / P;
  for (int i = 0; i < spread; ++i) {
    i8_tile<R, P>(m, panel + i, spread, tile, ahead, y, stride, add_to);
  }
  for (panel += P * spread; panel < end; ++panel) {
    i8_tile<R, 1>(m, panel, 1, tile, ahead, y, stride, add_to);
  }
}

template <int R>
static void i8_rows(int rows, const I8Matrix& m, int panel, int end, const QuantisedTile& tile,
                    Prefetch ahead, float* y, std::size_t stride, bool add_to) {
  if constexpr (R > 0) {
    if (rows == R) {
      i8_panels<R>(m, panel, end, tile, ahead, y, stride, add_to);
    } else {
      i8_rows<R - 1>(rows, m, panel, end, tile, ahead, y, stride, add_to);
    }
  }
}

// Quantise one row to [−127, 127] with its own scale. Groups of inputs are written `step` bytes
// apart. Returns the scale, and what the offset of the weights adds to the sums.
static float quantise_row(const float* x, int inputs, int padded, int8_t* to, int step,
                          int32_t* correction) {
  Vec top = set1(0.0f);
  int k = 0;
  for (; k + Vec::width <= inputs; k += Vec::width) {
    const Vec v = load(x + k);
    top = vmax(top, vmax(v, sub(set1(0.0f), v)));
  }
  float most = largest(top);
  for (; k < inputs; ++k) {
    const float size = x[k] < 0 ? -x[k] : x[k];
    most = size > most ? size : most;
  }
  const Vec inverse = set1(most > 0 ? 127.0f / most : 0.0f);
  Vec total = set1(0.0f);  // of whole numbers, so exact
  int8_t bytes[Vec::width];
  const auto at = [=](int input) { return to + input / kI8Group * step + input % kI8Group; };
  for (k = 0; k < inputs; k += Vec::width) {
    const int left = inputs - k;
    const Vec values = left >= Vec::width ? load(x + k) : load_some(x + k, left);
    const Vec rounded = round_even(mul(values, inverse));
    if (kI8Offset != 0) total = add(total, rounded);
    store_int8(bytes, rounded);
    const int end = padded - k < Vec::width ? padded - k : Vec::width;
    for (int i = 0; i < end; i += 4) __builtin_memcpy(at(k + i), bytes + i, 4);
  }
  for (; k < padded; k += 4) __builtin_memset(at(k), 0, 4);
  // The sum is NaN where a value is, as the weights of a damaged file may be: so is the row then.
  const float all = sum(total);
  const bool finite = all - all == 0.0f;
  *correction = finite ? kI8Offset * static_cast<int32_t>(all) : 0;
  return finite ? most / 127.0f : all - all;
}

static void op_multiply_i8(const I8Matrix& m, const Rows& rows, void* scratch) {
  const int panels = (m.outputs + kI8Panel - 1) / kI8Panel;
  const int padded = m.padded_inputs;
  // scratch: scales and corrections of a block, then the packed tiles
  float* scales = static_cast<float*>(scratch);
  int32_t* corrections = reinterpret_cast<int32_t*>(scales + kRowBlock);
  int8_t* packed = reinterpret_cast<int8_t*>(corrections + kRowBlock);
  const int block = block_rows(padded);
  for (int start = 0; start < rows.count; start += block) {
    const int count = rows.count - start < block ? rows.count - start : block;
    const int most = tile_rows(count, kI8Rows);
    const std::size_t tile_bytes = static_cast<std::size_t>(padded) * pack_stride(most);
    for (int r = 0; r < count; ++r) {
      const float* x = rows.x + static_cast<std::size_t>(start + r) * rows.x_stride;
      const int first = r / most * most;
      const int some = count - first < most ? count - first : most;
      int8_t* tile = packed + tile_bytes * static_cast<std::size_t>(r / most);
      scales[r] = quantise_row(x, m.inputs, padded, tile + kI8Group * (r - first),
                               kI8Group * pack_stride(some), corrections + r);
    }
    float* y = rows.y + static_cast<std::size_t>(start) * rows.y_stride;
    constexpr std::size_t line = 4 * kI8Panel;
    const Passes passes{(count + most - 1) / most, line, static_cast<std::size_t>(padded) * kI8Panel,
                        panels};
    const int group = passes.group();
    for (int panel = 0; panel < panels; panel += group) {
      const int end = panel + group < panels ? panel + group : panels;
      for (int r = 0; r < count; r += most) {
        const int some = count - r < most ? count - r : most;
        const QuantisedTile tile = {packed + tile_bytes * static_cast<std::size_t>(r / most),
                                    scales + r, corrections + r};
        i8_rows<kI8Rows>(some, m, panel, end, tile, passes.ahead(r / most, some),
                         y + static_cast<std::size_t>(r) * rows.y_stride, rows.y_stride, rows.add);
      }
    }
  }
}

static constexpr Kernels make_kernels(const char* name) {
  return {name,          kF32Panel,      kI8Panel,          kI8Group,   kI8Offset,
          op_multiply_f32, op_multiply_i8, op_norm,         op_relu,    op_gelu,
          op_gelu_tanh,  op_silu,        op_swiglu,         op_geglu,   op_sigmoid,
          op_tanh,       op_dot,         op_additive_score, op_attend,  op_softmax,
          op_add_scaled, op_log_sum_exp};
}
