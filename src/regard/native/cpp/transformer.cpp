// The Transformer encoder–decoder. Rows of all sources are multiplied together; attention runs
// source by source and row by row, so no row depends on its neighbours.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "linear.h"
#include "model.h"
#include "position.h"

namespace regard {
namespace {

constexpr int kBlockSteps = 16;  // positions per allocation of the KV cache

// Keys and values of one source: of its tokens (memory), and of the decoder's past positions. Each
// head's are contiguous, in the order in which attention reads them.
class TransformerState : public SourceState {
 public:
  TransformerState(int length, int layers, int slots, int heads, int dim)
      : length(length),
        memory(static_cast<std::size_t>(length) * layers * heads * 2 * dim),
        layers_(layers),
        slots_(slots),
        heads_(heads),
        pair_(2 * static_cast<std::size_t>(dim)) {}

  // Key and value of the first head; those of the next head are memory_head() floats further.
  float* memory_row(int layer, int token) const {
    const std::size_t row = static_cast<std::size_t>(layer) * heads_ * length + token;
    return memory.data() + row * pair_;
  }
  std::size_t memory_head() const { return static_cast<std::size_t>(length) * pair_; }

  // The same for the position `time` of a beam slot.
  float* past_row(int layer, int time, int slot) const {
    const std::size_t row = static_cast<std::size_t>(layer) * heads_ * kBlockSteps * slots_ +
                            static_cast<std::size_t>(time % kBlockSteps) * slots_ + slot;
    return blocks_[static_cast<std::size_t>(time / kBlockSteps)].data() + row * pair_;
  }
  std::size_t past_head() const { return static_cast<std::size_t>(kBlockSteps) * slots_ * pair_; }

  void grow(int time) {
    while (static_cast<int>(blocks_.size()) * kBlockSteps <= time) {
      blocks_.emplace_back(static_cast<std::size_t>(layers_) * heads_ * kBlockSteps * slots_ *
                           pair_);
    }
  }

  const int length;
  Buffer<float> memory;  // [layer][head][token][key, value]

 private:
  const int layers_;
  const int slots_;
  const int heads_;
  const std::size_t pair_;
  std::vector<Buffer<float>> blocks_;  // [layer][head][time][slot][key, value]
};

// Where attention finds the keys and values of a head: floats from a row's start to those of the
// first head, and from one head to the next.
struct HeadLayout {
  std::size_t value_offset;
  std::size_t head_stride;
};

struct Norm {
  const float* gamma;
  const float* beta;
};

struct Layer {
  Linear qkv, out, cross_queries, cross_out, inner, outer;
  Norm norms[3];
};

class Transformer : public Model {
 public:
  Transformer(const Kernels& kernels, const ModelSettings& settings, Weights& weights,
              const std::vector<double>& frequencies);

  void prepare_position(int last) const override {
    encoder_position_.prepare(last);
    decoder_position_.prepare(last);
  }

  bool has_cross_attention() const override { return true; }

  std::vector<std::unique_ptr<SourceState>> encode(const std::vector<Source>& sources, int slots,
                                                   Workspace& workspace) const override;
  void step(const std::vector<DecoderRow>& rows, float* logits,
            Workspace& workspace) const override;

 private:
  Layer build_layer(Weights& weights, const std::string& name, bool decoder);
  Norm build_norm(Weights& weights, const std::string& name) const;
  LinearPart part(Weights& weights, const std::string& name, int outputs, int inputs) const;

  void embed(const Matrix& table, int token, const Position& position, int at, float* to) const;
  void norm(const float* from, float* to, int rows, const Norm& norm) const;
  void activate(float* hidden, int rows) const;
  template <class F>
  void residual(float* x, int rows, const Norm& norm, Workspace& w, F add_sublayer) const;
  void feed_forward(const Layer& layer, const float* y, float* x, int rows, Workspace& w) const;
  void attend(const float* queries, HeadLayout layout, const Position* position, int at,
              int first_key, int count, float* context, float* alignment, Workspace& w) const;
  void split_heads(const float* keys_values, float* to, std::size_t head_stride) const;
  void attend_source(const std::vector<Source>& sources, Workspace& w) const;
  void attend_past(int layer, const std::vector<DecoderRow>& rows, Workspace& w) const;
  void attend_memory(int layer, const std::vector<DecoderRow>& rows, Workspace& w) const;
  void reserve(int rows, int longest, Workspace& w) const;

  Activation activation() const { return static_cast<Activation>(settings_.activation); }
  bool is_gated() const {
    return activation() == Activation::swiglu || activation() == Activation::geglu;
  }

  int dim_, attention_width_, kv_width_, qkv_width_, inner_width_;
  Matrix source_table_;
  Matrix target_table_;
  Position encoder_position_, decoder_position_;
  std::vector<Layer> encoder_, decoder_;
  Linear memory_kv_;  // keys and values of all decoder layers
  Norm encoder_norm_{}, decoder_norm_{}, source_norm_{}, target_norm_{};
  Linear logits_;
};

// ---- construction ----------------------------------------------------------------------------

LinearPart Transformer::part(Weights& weights, const std::string& name, int outputs,
                             int inputs) const {
  return {weights.weight(name + ".weight", outputs, inputs),
          settings_.biases ? weights.vector(name + ".bias", outputs) : nullptr, outputs};
}

Norm Transformer::build_norm(Weights& weights, const std::string& name) const {
  return {weights.vector(name + ".weight", settings_.width),
          settings_.rms_norm ? nullptr : weights.vector(name + ".bias", settings_.width)};
}

Layer Transformer::build_layer(Weights& weights, const std::string& name, bool decoder) {
  const int width = settings_.width, heads_width = attention_width_;
  const bool int8 = settings_.int8 != 0;
  const auto linear = [&](const std::vector<LinearPart>& parts, int inputs) {
    return Linear(*kernels_, parts, inputs, int8);
  };
  Layer layer;
  const std::string self = name + ".self_attention.";
  layer.qkv = linear({part(weights, self + "queries", heads_width, width),
                      part(weights, self + "keys", kv_width_, width),
                      part(weights, self + "values", kv_width_, width)},
                     width);
  layer.out = linear({part(weights, self + "out", width, heads_width)}, heads_width);
  if (decoder) {
    const std::string cross = name + ".cross_attention.";
    layer.cross_queries = linear({part(weights, cross + "queries", heads_width, width)}, width);
    layer.cross_out = linear({part(weights, cross + "out", width, heads_width)}, heads_width);
  }
  layer.inner = linear({part(weights, name + ".feed_forward.inner", inner_width_, width)}, width);
  layer.outer = linear({part(weights, name + ".feed_forward.outer", width, settings_.ffn_width)},
                       settings_.ffn_width);
  for (int i = 0; i < (decoder ? 3 : 2); ++i) {
    layer.norms[i] = build_norm(weights, name + ".residual" + std::to_string(i + 1) + ".norm");
  }
  return layer;
}

Transformer::Transformer(const Kernels& kernels, const ModelSettings& s, Weights& weights,
                         const std::vector<double>& frequencies)
    : Model(kernels, s),
      dim_(s.dim),
      attention_width_(s.heads * dim_),
      kv_width_(s.kv_heads * dim_),
      qkv_width_(attention_width_ + 2 * kv_width_),
      inner_width_(s.ffn_width * (is_gated() ? 2 : 1)) {
  source_table_ = weights.weight("source.table", s.source_vocabulary, s.width);
  target_table_ =
      s.tied >= 2 ? source_table_ : weights.weight("target.table", s.target_vocabulary, s.width);
  const Matrix output = s.tied == 1 || s.tied == 2
                            ? target_table_
                            : weights.weight("output.table", s.target_vocabulary, s.width);
  const float* output_bias =
      s.output_bias ? weights.vector("output.bias", s.target_vocabulary) : nullptr;
  logits_ = Linear(kernels, {{output, output_bias, s.target_vocabulary}}, s.width, s.int8 != 0);
  encoder_position_.build(kernels, s, weights, frequencies, "source.position.table",
                          "native.encoder_bias");
  decoder_position_.build(kernels, s, weights, frequencies, "target.position.table",
                          "native.decoder_bias");
  for (int i = 0; i < s.encoder_layers; ++i) {
    encoder_.push_back(build_layer(weights, "encoder." + std::to_string(i), false));
  }
  std::vector<LinearPart> memory;
  for (int i = 0; i < s.decoder_layers; ++i) {
    const std::string name = "decoder." + std::to_string(i);
    decoder_.push_back(build_layer(weights, name, true));
    memory.push_back(part(weights, name + ".cross_attention.keys", kv_width_, s.width));
    memory.push_back(part(weights, name + ".cross_attention.values", kv_width_, s.width));
  }
  memory_kv_ = Linear(kernels, memory, s.width, s.int8 != 0);
  if (s.pre_norm) {
    encoder_norm_ = build_norm(weights, "encoder_norm");
    decoder_norm_ = build_norm(weights, "decoder_norm");
  }
  if (s.embedding_norm) {
    source_norm_ = build_norm(weights, "source.norm");
    target_norm_ = build_norm(weights, "target.norm");
  }
}

// ---- layers ----------------------------------------------------------------------------------

void Transformer::reserve(int rows, int longest, Workspace& w) const {
  const std::size_t count = static_cast<std::size_t>(rows);
  w.x.reserve(count * settings_.width);
  w.y.reserve(count * settings_.width);
  w.qkv.reserve(count * qkv_width_);
  w.context.reserve(count * attention_width_);
  w.hidden.reserve(count * inner_width_);
  w.weights.reserve(static_cast<std::size_t>(longest) + kVectorPadding);
  w.bias.reserve(static_cast<std::size_t>(longest) + kVectorPadding);
  w.rows.resize(static_cast<std::size_t>(longest));
}

void Transformer::embed(const Matrix& table, int token, const Position& position, int at,
                        float* to) const {
  const int width = settings_.width;
  table.read_row(static_cast<std::size_t>(token), static_cast<std::size_t>(width),
                 settings_.embedding_scale, to);
  if (position.is_added()) {
    const float* added = position.added(at);
    for (int i = 0; i < width; ++i) to[i] += added[i];
  }
}

void Transformer::norm(const float* from, float* to, int rows, const Norm& norm) const {
  kernels_->norm(from, to, rows, settings_.width, norm.gamma, norm.beta, settings_.norm_eps);
}

// x + f(norm(x)) with pre-norm, norm(x + f(x)) with post-norm; add_sublayer(y) adds f(y) to x.
template <class F>
void Transformer::residual(float* x, int rows, const Norm& norm, Workspace& w,
                           F add_sublayer) const {
  if (settings_.pre_norm) {
    this->norm(x, w.y.data(), rows, norm);
    add_sublayer(w.y.data());
  } else {
    add_sublayer(x);
    this->norm(x, x, rows, norm);
  }
}

void Transformer::activate(float* hidden, int rows) const {
  const std::size_t stride = static_cast<std::size_t>(inner_width_);
  if (is_gated()) {
    const auto gate = activation() == Activation::geglu ? kernels_->geglu : kernels_->swiglu;
    for (int r = 0; r < rows; ++r, hidden += stride) gate(hidden, settings_.ffn_width);
    return;
  }
  const auto function = activation() == Activation::relu        ? kernels_->relu
                        : activation() == Activation::gelu      ? kernels_->gelu
                        : activation() == Activation::gelu_tanh ? kernels_->gelu_tanh
                                                                : kernels_->silu;
  function(hidden, stride * static_cast<std::size_t>(rows));
}

void Transformer::feed_forward(const Layer& layer, const float* y, float* x, int rows,
                               Workspace& w) const {
  const std::size_t width = static_cast<std::size_t>(settings_.width);
  const std::size_t stride = static_cast<std::size_t>(inner_width_);
  float* hidden = w.hidden.data();
  layer.inner.apply(y, width, rows, hidden, stride, w);
  activate(hidden, rows);
  layer.outer.apply(hidden, stride, rows, x, width, w, true);
}

// All heads of one query over the keys in w.rows[0 … count − 1], of which the first is at position
// `first_key`. Without `position` there is no bias. The weights' share of the mean over layers and
// heads is added to `alignment`, if not null.
void Transformer::attend(const float* queries, HeadLayout layout, const Position* position, int at,
                         int first_key, int count, float* context, float* alignment,
                         Workspace& w) const {
  const int group = settings_.heads / settings_.kv_heads;
  const bool biased = position != nullptr && position->is_bias();
  for (int head = 0; head < settings_.heads; ++head) {
    const std::size_t offset = static_cast<std::size_t>(head / group) * layout.head_stride;
    const float* query = queries + static_cast<std::size_t>(head) * dim_;
    if (biased) position->bias(head, query, at, first_key, count, w.bias.data());
    kernels_->attend({query, w.rows.data(), offset, offset + layout.value_offset, count, dim_,
                      settings_.score_scale, biased ? w.bias.data() : nullptr, w.weights.data(),
                      context + static_cast<std::size_t>(head) * dim_});
    if (alignment != nullptr) {
      const float share = 1.0f / static_cast<float>(settings_.heads * settings_.decoder_layers);
      kernels_->add_scaled(alignment, w.weights.data(), share, count);
    }
  }
}

// Copy a token's keys of all heads, then values of all heads, to one pair per head.
void Transformer::split_heads(const float* keys_values, float* to, std::size_t head_stride) const {
  const std::size_t dim = static_cast<std::size_t>(dim_);
  for (int head = 0; head < settings_.kv_heads; ++head, keys_values += dim, to += head_stride) {
    std::memcpy(to, keys_values, dim * sizeof(float));
    std::memcpy(to + dim, keys_values + kv_width_, dim * sizeof(float));
  }
}

void Transformer::attend_source(const std::vector<Source>& sources, Workspace& w) const {
  const std::size_t stride = static_cast<std::size_t>(qkv_width_);
  const HeadLayout layout{static_cast<std::size_t>(kv_width_), static_cast<std::size_t>(dim_)};
  float* qkv = w.qkv.data();
  float* context = w.context.data();
  for (const Source& source : sources) {
    for (int t = 0; encoder_position_.is_rotary() && t < source.length; ++t) {
      encoder_position_.rotate(qkv + static_cast<std::size_t>(t) * stride,
                               settings_.heads + settings_.kv_heads, t);
    }
    for (int t = 0; t < source.length; ++t) {
      w.check_cancelled();
      const int first = settings_.window > 0 ? std::max(0, t - settings_.window + 1) : 0;
      const int end = settings_.window > 0 ? std::min<int>(source.length, t + settings_.window)
                                           : source.length;
      for (int k = first; k < end; ++k) {
        w.rows[static_cast<std::size_t>(k - first)] =
            qkv + static_cast<std::size_t>(k) * stride + attention_width_;
      }
      attend(qkv + static_cast<std::size_t>(t) * stride, layout, &encoder_position_, t, first,
             end - first, context + static_cast<std::size_t>(t) * attention_width_, nullptr, w);
    }
    qkv += static_cast<std::size_t>(source.length) * stride;
    context += static_cast<std::size_t>(source.length) * attention_width_;
  }
}

void Transformer::attend_past(int layer, const std::vector<DecoderRow>& rows, Workspace& w) const {
  float* qkv = w.qkv.data();
  float* context = w.context.data();
  for (const DecoderRow& row : rows) {
    const auto& state = static_cast<const TransformerState&>(*row.source);
    if (decoder_position_.is_rotary()) {
      decoder_position_.rotate(qkv, settings_.heads + settings_.kv_heads, row.time);
    }
    split_heads(qkv + attention_width_, state.past_row(layer, row.time, row.slot),
                state.past_head());
    const int first = settings_.window > 0 ? std::max(0, row.time - settings_.window + 1) : 0;
    for (int t = first; t <= row.time; ++t) {
      w.rows[static_cast<std::size_t>(t - first)] =
          state.past_row(layer, t, t == row.time ? row.slot : row.path[t]);
    }
    const HeadLayout layout{static_cast<std::size_t>(dim_), state.past_head()};
    attend(qkv, layout, &decoder_position_, row.time, first, row.time + 1 - first, context,
           nullptr, w);
    qkv += qkv_width_;
    context += attention_width_;
  }
}

void Transformer::attend_memory(int layer, const std::vector<DecoderRow>& rows,
                                Workspace& w) const {
  const float* queries = w.qkv.data();
  float* context = w.context.data();
  for (const DecoderRow& row : rows) {
    const auto& state = static_cast<const TransformerState&>(*row.source);
    for (int t = 0; t < state.length; ++t) {
      w.rows[static_cast<std::size_t>(t)] = state.memory_row(layer, t);
    }
    const HeadLayout layout{static_cast<std::size_t>(dim_), state.memory_head()};
    attend(queries, layout, nullptr, 0, 0, state.length, context, row.alignment, w);
    queries += attention_width_;
    context += attention_width_;
  }
}

// ---- encoder and decoder ---------------------------------------------------------------------

std::vector<std::unique_ptr<SourceState>> Transformer::encode(const std::vector<Source>& sources,
                                                              int slots, Workspace& w) const {
  const std::size_t width = static_cast<std::size_t>(settings_.width);
  int rows = 0, longest = 0;
  for (const Source& source : sources) {
    rows += source.length;
    longest = std::max(longest, source.length);
  }
  reserve(rows, longest, w);
  float* x = w.x.data();
  float* to = x;
  for (const Source& source : sources) {
    for (int t = 0; t < source.length; ++t, to += width) {
      embed(source_table_, source.ids[t], encoder_position_, t, to);
    }
  }
  if (settings_.embedding_norm) norm(x, x, rows, source_norm_);
  for (const Layer& layer : encoder_) {
    residual(x, rows, layer.norms[0], w, [&](const float* y) {
      layer.qkv.apply(y, width, rows, w.qkv.data(), qkv_width_, w);
      attend_source(sources, w);
      layer.out.apply(w.context.data(), attention_width_, rows, x, width, w, true);
    });
    residual(x, rows, layer.norms[1], w,
             [&](const float* y) { feed_forward(layer, y, x, rows, w); });
  }
  if (settings_.pre_norm) norm(x, x, rows, encoder_norm_);
  std::vector<std::unique_ptr<SourceState>> states;
  const int outputs = memory_kv_.outputs();
  float* memory = w.memory.reserve(static_cast<std::size_t>(rows) * outputs);
  memory_kv_.apply(x, width, rows, memory, outputs, w);
  for (const Source& source : sources) {
    auto state = std::make_unique<TransformerState>(source.length, settings_.decoder_layers, slots,
                                                    settings_.kv_heads, dim_);
    for (int t = 0; t < source.length; ++t) {
      for (int layer = 0; layer < settings_.decoder_layers; ++layer, memory += 2 * kv_width_) {
        split_heads(memory, state->memory_row(layer, t), state->memory_head());
      }
    }
    states.push_back(std::move(state));
  }
  return states;
}

void Transformer::step(const std::vector<DecoderRow>& rows, float* logits, Workspace& w) const {
  const std::size_t width = static_cast<std::size_t>(settings_.width);
  const int count = static_cast<int>(rows.size());
  int longest = 0;
  for (const DecoderRow& row : rows) {
    auto& state = static_cast<TransformerState&>(*row.source);
    state.grow(row.time);
    longest = std::max({longest, row.time + 1, state.length});
  }
  reserve(count, longest, w);
  float* x = w.x.data();
  for (int r = 0; r < count; ++r) {
    const DecoderRow& row = rows[static_cast<std::size_t>(r)];
    embed(target_table_, row.token, decoder_position_, row.time,
          x + static_cast<std::size_t>(r) * width);
  }
  if (settings_.embedding_norm) norm(x, x, count, target_norm_);
  for (std::size_t i = 0; i < decoder_.size(); ++i) {
    const Layer& layer = decoder_[i];
    residual(x, count, layer.norms[0], w, [&](const float* y) {
      layer.qkv.apply(y, width, count, w.qkv.data(), qkv_width_, w);
      attend_past(static_cast<int>(i), rows, w);
      layer.out.apply(w.context.data(), attention_width_, count, x, width, w, true);
    });
    residual(x, count, layer.norms[1], w, [&](const float* y) {
      layer.cross_queries.apply(y, width, count, w.qkv.data(), attention_width_, w);
      attend_memory(static_cast<int>(i), rows, w);
      layer.cross_out.apply(w.context.data(), attention_width_, count, x, width, w, true);
    });
    residual(x, count, layer.norms[2], w,
             [&](const float* y) { feed_forward(layer, y, x, count, w); });
  }
  if (settings_.pre_norm) norm(x, x, count, decoder_norm_);
  logits_.apply(x, width, count, logits, settings_.target_vocabulary, w);
}

}  // namespace

void check_settings(const ModelSettings& s) {
  const auto require = [](bool good, const char* what) {
    if (!good) throw Error(std::string("the model settings are invalid: ") + what);
  };
  constexpr int most = 1 << 20;
  for (int size : {s.width, s.encoder_layers, s.decoder_layers}) {
    require(size >= 1 && size <= most, "sizes must be between 1 and 2^20");
  }
  require(s.source_vocabulary >= 1 && s.target_vocabulary >= 2, "vocabulary size");
  require(s.tied >= 0 && s.tied <= (s.family == 0 ? 3 : 2), "tied embeddings");
  require(s.tied < 2 || s.source_vocabulary == s.target_vocabulary, "tied embeddings");
  if (s.family == 0) {
    require(s.heads >= 1 && s.heads <= most, "heads");
    require(s.dim >= 1 && s.dim <= most / s.heads, "dim");
    require(s.kv_heads >= 1 && s.kv_heads <= s.heads && s.heads % s.kv_heads == 0, "kv_heads");
    require(s.ffn_width >= 1 && s.ffn_width <= most, "ffn_width");
    require(s.position >= 0 && s.position <= 7, "position");
    require(s.position_limit >= 0 && s.position_limit <= most, "position limit");
    require(s.activation >= 0 && s.activation <= static_cast<int>(Activation::geglu),
            "activation");
    require(s.window >= 0, "window");
    require(s.norm_eps > 0.0f && std::isfinite(s.norm_eps), "norm_eps");
    require(std::isfinite(s.embedding_scale), "embedding_scale");
  } else {
    require(s.family == 1, "family");
    require(s.width % 2 == 0, "width");
    require(s.cell >= 0 && s.cell <= 1, "cell");
    require(s.attention >= 0 && s.attention <= 2, "attention");
    require(s.score >= 0 && s.score <= 2, "score");
  }
}

std::unique_ptr<Model> build_transformer(const Kernels& kernels, const ModelSettings& settings,
                                         Weights& weights,
                                         const std::vector<double>& frequencies) {
  return std::make_unique<Transformer>(kernels, settings, weights, frequencies);
}

}  // namespace regard
