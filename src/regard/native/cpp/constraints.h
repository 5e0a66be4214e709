// Decoding options and the constraints on outputs, as in regard.search.constraints.
#pragma once

#include <vector>

#include "model.h"

namespace regard {

// The C structure of decoding options; the Python binding mirrors it field by field.
struct DecodingOptions {
  std::int32_t beam;       // 1: greedy search, without length penalty
  std::int32_t n_best;     // hypotheses per source; with sampling, samples
  std::int32_t gnmt;       // whether the length penalty is ((5 + length) / 6)^alpha
  std::int32_t min_length;
  std::int32_t max_length;  // −1: no limit but that of the source
  std::int32_t no_repeat_ngram;
  std::int32_t sample;
  std::int32_t top_k;  // 0: off
  std::int32_t end;    // the token that ends an output
  double length_alpha;
  double repetition_penalty;
  double temperature;
  double top_p;
  double min_p;
  // Sequences of ids: ends[i] is where sequence i ends in `ids`.
  const std::int32_t* ids;
  const std::int32_t* ends;
  std::int32_t never_count;     // first the start tokens; then, 0 or 1: tokens never generated
  std::int32_t prefix_count;    // 0 or 1: what every output starts with
  std::int32_t ban_count;       // then the banned sequences
  std::int32_t required_count;  // then the required sequences, then their opening forms
};

using Tokens = std::vector<int>;

// Token sequences that every output must contain (Post & Vilar 2018).
class LexicalConstraints {
 public:
  std::vector<Tokens> sequences, opening;

  bool empty() const { return sequences.empty(); }
  int total() const;

  // How many required tokens are present: complete sequences, and the one in progress.
  int met(const Tokens& ids) const;

  // The tokens that start or continue a missing sequence.
  Tokens needed(const Tokens& ids) const;

 private:
  bool is_missing(std::size_t index, const Tokens& ids) const;
};

// All constraints of a search.
class Constraints {
 public:
  Constraints(const DecodingOptions& options, int vocabulary);

  bool any() const { return any_ || !required_.empty(); }
  int end() const { return options_.end; }
  // The tokens that the decoder is given before the first generated one; at least one.
  const Tokens& start() const { return start_; }
  const LexicalConstraints& required() const { return required_; }

  // Set the log-probabilities of forbidden tokens to −∞, and penalise repetitions.
  void apply(const Tokens& so_far, float* logps) const;

 private:
  DecodingOptions options_;
  int vocabulary_;
  bool any_;
  Tokens start_;
  Tokens never_;
  Tokens prefix_;
  std::vector<Tokens> banned_;
  LexicalConstraints required_;
};

}  // namespace regard
