// Position encodings of Transformers, in the three places where they act.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "model.h"

namespace regard {

enum class PositionKind {
  none = 0,
  sinusoidal_paired = 1,  // added: sin, cos, sin, cos …
  sinusoidal_halves = 2,  // added: all sines, then all cosines
  learned = 3,            // added: a table
  rotary = 4,
  slopes = 5,    // bias −slope[head] · |distance| (ALiBi)
  distance = 6,  // bias table[head][clipped distance] (learned distances, T5 buckets)
  shaw = 7,      // bias query · table[clipped distance] · scale
};

// The position encoding of one side (encoder or decoder).
class Position {
 public:
  Position() = default;
  Position(const Position&) = delete;
  Position& operator=(const Position&) = delete;

  // `bias_table` is the tensor of the slopes, distances or vectors of this side.
  void build(const Kernels& kernels, const ModelSettings& settings, Weights& weights,
             const std::vector<double>& frequencies, const std::string& learned_table,
             const std::string& bias_table);

  void prepare(int last) const;

  bool is_added() const;
  bool is_rotary() const { return kind_ == PositionKind::rotary; }
  bool is_bias() const { return kind_ >= PositionKind::slopes; }

  // The vector that is added at a position.
  const float* added(int position) const;

  // Rotate `heads` consecutive vectors of `dim` values in place.
  void rotate(float* vectors, int heads, int position) const;

  // The bias of `count` keys from position `first` on, for one query.
  void bias(int head, const float* query, int position, int first, int count, float* to) const;

 private:
  // Sinusoids or angles of the first positions. Larger tables replace smaller ones, which stay
  // allocated, because other threads may be reading them.
  struct Table {
    int length;
    Buffer<float> values;
  };
  const Table* compute_table(int length) const;

  PositionKind kind_ = PositionKind::none;
  const Kernels* kernels_ = nullptr;
  int width_ = 0;
  int dim_ = 0;
  int limit_ = 0;
  int rotated_ = 0;
  bool neighbours_ = false;
  float scale_ = 1.0f;
  std::vector<double> frequencies_;
  std::vector<float> bias_;
  const float* learned_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Table>> tables_;
  mutable std::atomic<const Table*> table_{nullptr};
};

}  // namespace regard
