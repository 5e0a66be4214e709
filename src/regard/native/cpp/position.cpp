// Position encodings: sinusoids and rotations are computed in double precision and rounded once.
#include "position.h"

#include <algorithm>
#include <cmath>

namespace regard {

void Position::build(const Kernels& kernels, const ModelSettings& s, Weights& weights,
                     const std::vector<double>& frequencies, const std::string& learned_table,
                     const std::string& bias_table) {
  kernels_ = &kernels;
  kind_ = static_cast<PositionKind>(s.position);
  width_ = s.width;
  dim_ = s.dim;
  limit_ = s.position_limit;
  rotated_ = s.rotated_dims;
  neighbours_ = s.neighbours != 0;
  scale_ = 1.0f / std::sqrt(static_cast<float>(dim_));
  frequencies_ = frequencies;
  std::size_t wanted = 0;
  if (kind_ == PositionKind::sinusoidal_paired || kind_ == PositionKind::sinusoidal_halves) {
    wanted = static_cast<std::size_t>(s.width + 1) / 2;
  } else if (is_rotary()) {
    wanted = static_cast<std::size_t>(rotated_) / 2;
    if (rotated_ < 2 || rotated_ > dim_ || rotated_ % 2 != 0) throw Error("bad rotated dims");
  }
  if (frequencies_.size() != wanted) throw Error("the position encoding has bad frequencies");
  if (kind_ == PositionKind::learned) learned_ = weights.matrix(learned_table, limit_, s.width);
  const std::int64_t distances = 2 * static_cast<std::int64_t>(limit_) + 1;
  const float* table = nullptr;
  std::int64_t size = 0;
  if (kind_ == PositionKind::slopes) {
    table = weights.vector(bias_table, size = s.heads);
  } else if (kind_ == PositionKind::distance) {
    table = weights.matrix(bias_table, s.heads, distances);
    size = s.heads * distances;
  } else if (kind_ == PositionKind::shaw) {
    table = weights.matrix(bias_table, distances, dim_);
    size = distances * dim_;
  }
  if (table != nullptr) bias_.assign(table, table + size);
}

void Position::prepare(int last) const {
  if (kind_ == PositionKind::learned && last >= limit_) {
    throw Error("position " + std::to_string(last) + " is beyond the " + std::to_string(limit_) +
                " learned positions; use a larger 'max_length', or an encoding that is computed, "
                "such as 'sinusoidal' or 'rotary'");
  }
  if (frequencies_.empty()) return;
  const Table* table = table_.load(std::memory_order_acquire);
  if (table == nullptr || table->length <= last) compute_table(last + 1);
}

bool Position::is_added() const {
  return kind_ >= PositionKind::sinusoidal_paired && kind_ <= PositionKind::learned;
}

const Position::Table* Position::compute_table(int length) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Table* known = table_.load(std::memory_order_acquire);
  if (known != nullptr && known->length >= length) return known;
  int size = 64;
  while (size < length) size *= 2;
  auto table = std::make_unique<Table>();
  const std::size_t pairs = frequencies_.size();
  const std::size_t row = is_rotary() ? 2 * pairs : static_cast<std::size_t>(width_);
  table->length = size;
  float* values = table->values.reserve(row * static_cast<std::size_t>(size));
  for (int p = 0; p < size; ++p, values += row) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = p * frequencies_[i];
      const float cosine = static_cast<float>(std::cos(angle));
      const float sine = static_cast<float>(std::sin(angle));
      const bool halves = kind_ == PositionKind::sinusoidal_halves;
      if (is_rotary()) {
        values[i] = cosine;
        values[pairs + i] = sine;
        continue;
      }
      const std::size_t sine_at = halves ? i : 2 * i;
      const std::size_t cosine_at = halves ? pairs + i : 2 * i + 1;
      if (sine_at < row) values[sine_at] = sine;
      if (cosine_at < row) values[cosine_at] = cosine;
    }
  }
  tables_.push_back(std::move(table));
  table_.store(tables_.back().get(), std::memory_order_release);
  return tables_.back().get();
}

const float* Position::added(int position) const {
  const std::size_t at = static_cast<std::size_t>(position) * static_cast<std::size_t>(width_);
  if (learned_ != nullptr) return learned_ + at;
  return table_.load(std::memory_order_acquire)->values.data() + at;
}

void Position::rotate(float* vectors, int heads, int position) const {
  const int pairs = rotated_ / 2;
  const float* cosine = table_.load(std::memory_order_acquire)->values.data() +
                        static_cast<std::size_t>(position) * static_cast<std::size_t>(rotated_);
  const float* sine = cosine + pairs;
  for (int head = 0; head < heads; ++head, vectors += dim_) {
    if (neighbours_) {
      for (int i = 0; i < pairs; ++i) {
        const float a = vectors[2 * i];
        const float b = vectors[2 * i + 1];
        vectors[2 * i] = a * cosine[i] - b * sine[i];
        vectors[2 * i + 1] = b * cosine[i] + a * sine[i];
      }
    } else {
      float* other = vectors + pairs;
      for (int i = 0; i < pairs; ++i) {
        const float a = vectors[i];
        const float b = other[i];
        vectors[i] = a * cosine[i] - b * sine[i];
        other[i] = b * cosine[i] + a * sine[i];
      }
    }
  }
}

void Position::bias(int head, const float* query, int position, int first, int count,
                    float* to) const {
  const std::size_t distances = 2 * static_cast<std::size_t>(limit_) + 1;
  const float* table = bias_.data();
  for (int i = 0; i < count; ++i) {
    const int ahead = first + i - position;
    const int index = std::clamp(ahead, -limit_, limit_) + limit_;
    if (kind_ == PositionKind::slopes) {
      to[i] = -table[head] * static_cast<float>(std::abs(ahead));
    } else if (kind_ == PositionKind::distance) {
      to[i] = table[static_cast<std::size_t>(head) * distances + static_cast<std::size_t>(index)];
    } else {
      const float* vector = table + static_cast<std::size_t>(index) * dim_;
      to[i] = kernels_->dot(query, vector, dim_) * scale_;
    }
  }
}

}  // namespace regard
