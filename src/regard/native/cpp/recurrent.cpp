// The recurrent encoder–decoder: GRU or LSTM, with attention before each step (Bahdanau), after it
// (Luong), or without attention.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "linear.h"
#include "model.h"

namespace regard {
namespace {

constexpr int kScoreAdditive = 1;
constexpr int kScoreGeneral = 2;

enum class Attention { none = 0, bahdanau = 1, luong = 2 };

// What the decoder keeps for one source. Hidden states are those of two successive positions,
// because a beam reads the one that its parent wrote.
class RecurrentState : public SourceState {
 public:
  RecurrentState(int length, int width, int slots, int state_size)
      : length(length),
        keys(static_cast<std::size_t>(length) * width),
        values(static_cast<std::size_t>(length) * width),
        summary(static_cast<std::size_t>(width)),
        initial(static_cast<std::size_t>(state_size)),
        hidden_(2 * static_cast<std::size_t>(slots) * state_size),
        slots_(slots),
        state_size_(state_size) {}

  // The state after the token at position `time` in a beam slot: [layer][h, c].
  float* hidden(int time, int slot) const {
    const std::size_t index = static_cast<std::size_t>(time % 2) * slots_ + slot;
    return hidden_.data() + index * static_cast<std::size_t>(state_size_);
  }

  // The state before a row's token.
  const float* before(const DecoderRow& row) const {
    return row.time == 0 ? initial.data() : hidden(row.time - 1, row.path[row.time - 1]);
  }

  const int length;
  Buffer<float> keys, values, summary, initial;

 private:
  Buffer<float> hidden_;
  const int slots_;
  const int state_size_;
};

// One layer in one direction, for rows of any sources.
struct Cell {
  Linear input, recurrent;
  int size = 0;
  bool lstm = false;

  int gates() const { return (lstm ? 4 : 3) * size; }

  // The new h (and c) of one row from its gates, which are overwritten.
  void update(const Kernels& kernels, float* from_input, float* from_hidden, const float* h,
              const float* c, float* new_h, float* new_c) const {
    if (lstm) {  // gates i, f, g, o
      for (int i = 0; i < 4 * size; ++i) from_input[i] += from_hidden[i];
      kernels.sigmoid(from_input, 2 * static_cast<std::size_t>(size));
      kernels.tanh(from_input + 2 * size, static_cast<std::size_t>(size));
      kernels.sigmoid(from_input + 3 * size, static_cast<std::size_t>(size));
      for (int i = 0; i < size; ++i) {
        new_c[i] = from_input[size + i] * c[i] + from_input[i] * from_input[2 * size + i];
        new_h[i] = new_c[i];
      }
      kernels.tanh(new_h, static_cast<std::size_t>(size));
      for (int i = 0; i < size; ++i) new_h[i] *= from_input[3 * size + i];
      return;
    }
    // gates r, z, n
    for (int i = 0; i < 2 * size; ++i) from_input[i] += from_hidden[i];
    kernels.sigmoid(from_input, 2 * static_cast<std::size_t>(size));
    float* candidate = from_input + 2 * size;
    for (int i = 0; i < size; ++i) candidate[i] += from_input[i] * from_hidden[2 * size + i];
    kernels.tanh(candidate, static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) {
      const float z = from_input[size + i];
      new_h[i] = (1.0f - z) * candidate[i] + z * h[i];
    }
  }
};

class Recurrent : public Model {
 public:
  Recurrent(const Kernels& kernels, const ModelSettings& settings, Weights& weights);

  void prepare_position(int) const override {}
  bool has_cross_attention() const override { return attends(); }
  std::vector<std::unique_ptr<SourceState>> encode(const std::vector<Source>& sources, int slots,
                                                   Workspace& workspace) const override;
  void step(const std::vector<DecoderRow>& rows, float* logits,
            Workspace& workspace) const override;

 private:
  Linear linear(Weights& weights, const std::string& weight, const std::string& bias, int outputs,
                int inputs) const;
  Cell build_cell(Weights& weights, const std::string& name, const std::string& suffix, int inputs,
                  int size) const;
  void embed(const Matrix& table, int token, float* to) const;
  void read(const Cell& cell, bool backwards, const std::vector<Source>& sources, const float* x,
            float* states, float* final, Workspace& w) const;
  void attend(const std::vector<DecoderRow>& rows, const float* states, std::size_t stride,
              Workspace& w) const;
  bool attends() const { return settings_.attention != static_cast<int>(Attention::none); }
  bool attends_before() const {
    return settings_.attention == static_cast<int>(Attention::bahdanau);
  }
  // Values of one layer's state: h, and c for an LSTM.
  int layer_size() const { return settings_.width * (settings_.cell == 1 ? 2 : 1); }

  float embedding_scale_;
  Matrix source_table_;
  Matrix target_table_;
  std::vector<Cell> forward_, backward_, decoder_;
  Linear initial_, queries_, keys_, readout_, logits_;
  const float* score_vector_ = nullptr;
};

// ---- construction ----------------------------------------------------------------------------

Linear Recurrent::linear(Weights& weights, const std::string& weight, const std::string& bias,
                         int outputs, int inputs) const {
  const LinearPart part{weights.weight(weight, outputs, inputs),
                        bias.empty() ? nullptr : weights.vector(bias, outputs), outputs};
  return Linear(*kernels_, {part}, inputs, settings_.int8 != 0);
}

Cell Recurrent::build_cell(Weights& weights, const std::string& name, const std::string& suffix,
                           int inputs, int size) const {
  Cell cell;
  cell.size = size;
  cell.lstm = settings_.cell == 1;
  cell.input = linear(weights, name + ".weight_ih_l" + suffix, name + ".bias_ih_l" + suffix,
                      cell.gates(), inputs);
  cell.recurrent = linear(weights, name + ".weight_hh_l" + suffix, name + ".bias_hh_l" + suffix,
                          cell.gates(), size);
  return cell;
}

Recurrent::Recurrent(const Kernels& kernels, const ModelSettings& s, Weights& weights)
    : Model(kernels, s),
      embedding_scale_(static_cast<float>(std::sqrt(static_cast<double>(s.width)))) {
  const int width = s.width;
  source_table_ = weights.weight("source.table", s.source_vocabulary, width);
  target_table_ =
      s.tied == 2 ? source_table_ : weights.weight("target.table", s.target_vocabulary, width);
  const Matrix output =
      s.tied == 0 ? weights.weight("output.table", s.target_vocabulary, width) : target_table_;
  logits_ = Linear(kernels, {{output, nullptr, s.target_vocabulary}}, width, s.int8 != 0);
  for (int i = 0; i < s.encoder_layers; ++i) {
    const std::string layer = std::to_string(i);
    forward_.push_back(build_cell(weights, "encoder", layer, width, width / 2));
    backward_.push_back(build_cell(weights, "encoder", layer + "_reverse", width, width / 2));
  }
  const int context = s.attention == static_cast<int>(Attention::luong) ? 0 : width;
  for (int i = 0; i < s.decoder_layers; ++i) {
    const int inputs = i == 0 ? width + context : width;
    decoder_.push_back(build_cell(weights, "decoder", std::to_string(i), inputs, width));
  }
  initial_ = linear(weights, "initial.weight", "initial.bias", s.decoder_layers * width, width);
  readout_ = linear(weights, "readout.weight", "readout.bias", width, 2 * width);
  if (attends() && s.score == kScoreAdditive) {
    queries_ = linear(weights, "attention.queries.weight", "", width, width);
    keys_ = linear(weights, "attention.keys.weight", "attention.keys.bias", width, width);
    score_vector_ = weights.vector("attention.attention.score.v", width);
  } else if (attends() && s.score == kScoreGeneral) {
    queries_ = linear(weights, "attention.attention.score.weight", "", width, width);
  }
}

// ---- encoder ---------------------------------------------------------------------------------

void Recurrent::embed(const Matrix& table, int token, float* to) const {
  const std::size_t width = static_cast<std::size_t>(settings_.width);
  table.read_row(static_cast<std::size_t>(token), width, embedding_scale_, to);
}

// One direction of an encoder layer: x (token × width) to one half of states (token × width), and
// the last state of each source to one half of final (source × width).
void Recurrent::read(const Cell& cell, bool backwards, const std::vector<Source>& sources,
                     const float* x, float* states, float* final, Workspace& w) const {
  const std::size_t width = static_cast<std::size_t>(settings_.width);
  const std::size_t half = width / 2, gates = static_cast<std::size_t>(cell.gates());
  int tokens = 0, longest = 0;
  for (const Source& source : sources) {
    tokens += source.length;
    longest = std::max(longest, source.length);
  }
  float* from_input = w.qkv.reserve(static_cast<std::size_t>(tokens) * gates);
  cell.input.apply(x, width, tokens, from_input, gates, w);
  float* from_hidden = w.hidden.reserve(sources.size() * gates);
  float* h = w.context.zeros(2 * sources.size() * half);  // h of all sources, then c
  float* c = h + sources.size() * half;
  float* gathered = w.memory.reserve(sources.size() * half);
  for (int step = 0; step < longest; ++step) {
    w.check_cancelled();
    int rows = 0;  // sources that are longer than this step
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].length <= step) continue;
      std::memcpy(gathered + static_cast<std::size_t>(rows++) * half, h + i * half,
                  half * sizeof(float));
    }
    cell.recurrent.apply(gathered, half, rows, from_hidden, gates, w);
    std::size_t start = 0, row = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const int length = sources[i].length;
      if (length > step) {
        const int t = backwards ? length - 1 - step : step;
        const std::size_t token = start + static_cast<std::size_t>(t);
        cell.update(*kernels_, from_input + token * gates, from_hidden + row++ * gates,
                    h + i * half, c + i * half, h + i * half, c + i * half);
        std::memcpy(states + token * width, h + i * half, half * sizeof(float));
        if (step == length - 1) {
          std::memcpy(final + i * width, h + i * half, half * sizeof(float));
        }
      }
      start += static_cast<std::size_t>(length);
    }
  }
}

std::vector<std::unique_ptr<SourceState>> Recurrent::encode(const std::vector<Source>& sources,
                                                            int slots, Workspace& w) const {
  const std::size_t width = static_cast<std::size_t>(settings_.width);
  std::size_t tokens = 0;
  for (const Source& source : sources) tokens += static_cast<std::size_t>(source.length);
  float* x = w.x.reserve(tokens * width);
  float* states = w.y.reserve(tokens * width);
  float* final = w.bias.reserve(sources.size() * width);
  float* to = x;
  for (const Source& source : sources) {
    for (int t = 0; t < source.length; ++t, to += width) embed(source_table_, source.ids[t], to);
  }
  for (std::size_t layer = 0; layer < forward_.size(); ++layer) {
    read(forward_[layer], false, sources, x, states, final, w);
    read(backward_[layer], true, sources, x, states + width / 2, final + width / 2, w);
    std::memcpy(x, states, tokens * width * sizeof(float));
  }
  std::vector<std::unique_ptr<SourceState>> found;
  const std::size_t layers = decoder_.size();
  const std::size_t part = static_cast<std::size_t>(layer_size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::size_t size = static_cast<std::size_t>(sources[i].length) * width;
    auto state = std::make_unique<RecurrentState>(sources[i].length, settings_.width, slots,
                                                  static_cast<int>(layers * part));
    std::memcpy(state->values.data(), states, size * sizeof(float));
    std::memcpy(state->summary.data(), final + i * width, width * sizeof(float));
    if (attends() && settings_.score == kScoreAdditive) {
      keys_.apply(states, width, sources[i].length, state->keys.data(), width, w);
    } else {
      std::memcpy(state->keys.data(), states, size * sizeof(float));
    }
    float* first = w.hidden.reserve(layers * width);
    initial_.apply(final + i * width, width, 1, first, layers * width, w);
    kernels_->tanh(first, layers * width);
    float* initial = state->initial.zeros(layers * part);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      std::memcpy(initial + layer * part, first + layer * width, width * sizeof(float));
    }
    states += size;
    found.push_back(std::move(state));
  }
  return found;
}

// ---- decoder ---------------------------------------------------------------------------------

// The context vector of each row (w.context) for decoder states of the given stride.
void Recurrent::attend(const std::vector<DecoderRow>& rows, const float* states,
                       std::size_t stride, Workspace& w) const {
  const int width = settings_.width, count = static_cast<int>(rows.size());
  const std::size_t size = static_cast<std::size_t>(width);
  const float* queries = states;
  if (settings_.score == kScoreAdditive || settings_.score == kScoreGeneral) {
    float* projected = w.memory.reserve(rows.size() * size);
    queries_.apply(states, stride, count, projected, size, w);
    queries = projected;
    stride = size;
  }
  float* contexts = w.context.zeros(rows.size() * size);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& state = static_cast<const RecurrentState&>(*rows[r].source);
    const float* query = queries + r * stride;
    float* weights = w.weights.reserve(static_cast<std::size_t>(state.length) + kVectorPadding);
    for (int t = 0; t < state.length; ++t) {
      const float* key = state.keys.data() + static_cast<std::size_t>(t) * size;
      weights[t] = settings_.score == kScoreAdditive
                       ? kernels_->additive_score(score_vector_, query, key, width)
                       : kernels_->dot(query, key, width) * settings_.score_scale;
    }
    kernels_->softmax(weights, state.length);
    if (rows[r].alignment != nullptr) std::copy_n(weights, state.length, rows[r].alignment);
    for (int t = 0; t < state.length; ++t) {
      kernels_->add_scaled(contexts + r * size,
                           state.values.data() + static_cast<std::size_t>(t) * size, weights[t],
                           width);
    }
  }
}

void Recurrent::step(const std::vector<DecoderRow>& rows, float* logits, Workspace& w) const {
  const std::size_t width = static_cast<std::size_t>(settings_.width), count = rows.size();
  const std::size_t part = static_cast<std::size_t>(layer_size());
  const int rows_count = static_cast<int>(count);
  const bool context_input = settings_.attention != static_cast<int>(Attention::luong);
  const std::size_t stride = context_input ? 2 * width : width;
  float* h = w.y.reserve(count * 2 * width);  // h of one layer, later [state, context]
  if (attends_before()) {
    for (std::size_t r = 0; r < count; ++r) {
      const auto& state = static_cast<const RecurrentState&>(*rows[r].source);
      std::memcpy(h + r * width, state.before(rows[r]) + (decoder_.size() - 1) * part,
                  width * sizeof(float));
    }
    attend(rows, h, width, w);
  } else if (!attends()) {
    float* contexts = w.context.reserve(count * width);
    for (std::size_t r = 0; r < count; ++r) {
      const auto& state = static_cast<const RecurrentState&>(*rows[r].source);
      std::memcpy(contexts + r * width, state.summary.data(), width * sizeof(float));
    }
  }
  float* x = w.x.reserve(count * 2 * width);
  for (std::size_t r = 0; r < count; ++r) {
    embed(target_table_, rows[r].token, x + r * stride);
    if (context_input) {
      std::memcpy(x + r * stride + width, w.context.data() + r * width, width * sizeof(float));
    }
  }
  for (std::size_t layer = 0; layer < decoder_.size(); ++layer) {
    const Cell& cell = decoder_[layer];
    const std::size_t gates = static_cast<std::size_t>(cell.gates());
    for (std::size_t r = 0; r < count; ++r) {
      const auto& state = static_cast<const RecurrentState&>(*rows[r].source);
      std::memcpy(h + r * width, state.before(rows[r]) + layer * part, width * sizeof(float));
    }
    float* from_input = w.qkv.reserve(count * gates);
    float* from_hidden = w.hidden.reserve(count * gates);
    cell.input.apply(x, layer == 0 ? stride : width, rows_count, from_input, gates, w);
    cell.recurrent.apply(h, width, rows_count, from_hidden, gates, w);
    for (std::size_t r = 0; r < count; ++r) {
      const auto& state = static_cast<const RecurrentState&>(*rows[r].source);
      const float* before = state.before(rows[r]) + layer * part;
      float* after = state.hidden(rows[r].time, rows[r].slot) + layer * part;
      cell.update(*kernels_, from_input + r * gates, from_hidden + r * gates, before,
                  before + width, after, after + width);
      std::memcpy(x + r * width, after, width * sizeof(float));
    }
  }
  if (attends() && !attends_before()) attend(rows, x, width, w);
  for (std::size_t r = 0; r < count; ++r) {
    std::memcpy(h + r * 2 * width, x + r * width, width * sizeof(float));
    std::memcpy(h + r * 2 * width + width, w.context.data() + r * width, width * sizeof(float));
  }
  readout_.apply(h, 2 * width, rows_count, x, width, w);
  kernels_->tanh(x, count * width);
  logits_.apply(x, width, rows_count, logits, settings_.target_vocabulary, w);
}

}  // namespace

std::unique_ptr<Model> build_recurrent(const Kernels& kernels, const ModelSettings& settings,
                                       Weights& weights) {
  return std::make_unique<Recurrent>(kernels, settings, weights);
}

}  // namespace regard
