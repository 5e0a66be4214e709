// Log-probabilities of a step, shared by all searches.
#pragma once

#include <cmath>

#include "search.h"

namespace regard {

constexpr float kNever = -INFINITY;
constexpr const char* const kNotFinite =
    "the model's outputs are not finite (NaN); it cannot be used";
constexpr const char* const kUnsatisfiable =
    "no output satisfies all constraints; relax one (--max-length, --ban, ...)";

// log softmax of a row of logits: (x − maximum) − log Σ exp(x − maximum).
struct LogSoftmax {
  LogSoftmax(const Kernels& kernels, const float* logits, int count) : logits(logits) {
    kernels.log_sum_exp(logits, count, &maximum, &log_sum);
    if (!std::isfinite(maximum) || !std::isfinite(log_sum)) throw Error(kNotFinite);
  }

  float operator[](int token) const { return (logits[token] - maximum) - log_sum; }

  // All log-probabilities under the constraints; at its limit an output may only end.
  void allowed(const Constraints& constraints, const Tokens& so_far, bool at_limit, int count,
               float* to) const {
    for (int token = 0; token < count; ++token) to[token] = (*this)[token];
    constraints.apply(so_far, to);
    if (!at_limit) return;
    for (int token = 0; token < count; ++token) {
      if (token != constraints.end()) to[token] = kNever;
    }
  }

  const float* logits;
  float maximum = 0.0f;
  float log_sum = 0.0f;
};

inline int argmax(const float* values, int count) {
  int best = 0;
  for (int i = 1; i < count; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

}  // namespace regard
