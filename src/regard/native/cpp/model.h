// The contract between models and search: encode sources, then step rows of the decoder.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"
#include "memory.h"

namespace regard {

// The C structure of model settings; the Python binding mirrors it field by field.
struct ModelSettings {
  std::int32_t family;  // 0: Transformer, 1: recurrent
  std::int32_t width;
  std::int32_t heads;
  std::int32_t dim;  // of a head
  std::int32_t kv_heads;
  std::int32_t encoder_layers;
  std::int32_t decoder_layers;
  std::int32_t ffn_width;
  std::int32_t position;        // see position.h
  std::int32_t position_limit;  // learned: number of positions; relative: largest distance
  std::int32_t rotated_dims;
  std::int32_t neighbours;  // whether dims 2i and 2i + 1 are rotated together
  std::int32_t window;      // 0: no limit
  std::int32_t rms_norm;
  std::int32_t pre_norm;
  std::int32_t activation;  // see Activation
  std::int32_t biases;      // of linear layers
  std::int32_t embedding_norm;
  std::int32_t output_bias;
  std::int32_t tied;  // 0: none, 1: target with output, 2: source too, 3: source with target only
  std::int32_t source_vocabulary;
  std::int32_t target_vocabulary;
  std::int32_t cell;       // 0: GRU, 1: LSTM
  std::int32_t attention;  // 0: none, 1: Bahdanau, 2: Luong
  std::int32_t score;      // 0: dot, 1: additive, 2: general
  std::int32_t int8;
  float score_scale;
  float norm_eps;
  float embedding_scale;
};

enum class Activation { relu = 0, gelu = 1, swiglu = 2, gelu_tanh = 3, silu = 4, geglu = 5 };

// Token ids of one source, special tokens included.
struct Source {
  const std::int32_t* ids;
  int length;
};

// What the decoder keeps for one source: its memory, and the caches of all beams.
class SourceState {
 public:
  virtual ~SourceState() = default;
};

// One row of a decoder step: `token` is at position `time` in beam slot `slot`. The token at an
// earlier position t was written by slot path[t]. If not null, `alignment` (one value per source
// token) receives the mean of the cross-attention weights over layers and heads.
struct DecoderRow {
  SourceState* source;
  const int* path;
  int time;
  int slot;
  int token;
  float* alignment = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;

  // Raise if there is no position `last`; otherwise make sure that its encoding is available.
  virtual void prepare_position(int last) const = 0;

  // Encode some sources; each state serves `slots` beams.
  virtual std::vector<std::unique_ptr<SourceState>> encode(const std::vector<Source>& sources,
                                                           int slots,
                                                           Workspace& workspace) const = 0;

  // Logits (row × target vocabulary) of the token after each row's.
  virtual void step(const std::vector<DecoderRow>& rows, float* logits,
                    Workspace& workspace) const = 0;

  // Whether the decoder attends to the source, so that outputs can be aligned with it.
  virtual bool has_cross_attention() const = 0;

  const Kernels& kernels() const { return *kernels_; }
  int source_vocabulary() const { return settings_.source_vocabulary; }
  int target_vocabulary() const { return settings_.target_vocabulary; }

 protected:
  Model(const Kernels& kernels, const ModelSettings& settings)
      : kernels_(&kernels), settings_(settings) {}

  const Kernels* kernels_;
  ModelSettings settings_;
};

// Raise unless all sizes are positive, consistent and small enough for 32-bit arithmetic.
void check_settings(const ModelSettings& settings);

std::unique_ptr<Model> build_transformer(const Kernels& kernels, const ModelSettings& settings,
                                         Weights& weights,
                                         const std::vector<double>& frequencies);
std::unique_ptr<Model> build_recurrent(const Kernels& kernels, const ModelSettings& settings,
                                       Weights& weights);

}  // namespace regard
