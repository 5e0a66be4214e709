// Search over one source: greedy, beam search or sampling, as in regard.search.
#pragma once

#include <memory>
#include <vector>

#include "constraints.h"
#include "model.h"

namespace regard {

// An output: ids without start tokens and END, the log-probability of each and of END, the score by which
// hypotheses are ranked, and, where wanted, its alignment ([token or END][source token]).
struct Hypothesis {
  Tokens ids;
  std::vector<float> logps;
  double score;
  std::vector<float> alignment;
};

// A running search of one source. Each step takes the logits of its rows.
class SourceSearch {
 public:
  virtual ~SourceSearch() = default;

  // Append the rows of the next decoder step.
  virtual void append_rows(SourceState* state, std::vector<DecoderRow>& rows) = 0;

  // Take one step, given the logits of those rows; returns whether the search is finished.
  virtual bool advance(const float* logits, Workspace& workspace) = 0;

  // The ids that all hypotheses share, finished or not: they will not change any more.
  virtual Tokens committed_prefix() const = 0;

  // The hypotheses, best first.
  virtual std::vector<Hypothesis> take_results() = 0;
};

// `limit` is the maximum output length; `seeds` has n_best values where the options sample.
std::unique_ptr<SourceSearch> build_search(const Model& model, const DecodingOptions& options,
                                           const Constraints& constraints, int limit,
                                           const std::int64_t* seeds);

std::unique_ptr<SourceSearch> build_beam_search(const Model& model, const DecodingOptions& options,
                                                const Constraints& constraints, int limit);

// Teacher forcing: computes the log-probabilities of a given output and, with `source_length` > 0,
// its alignment.
std::unique_ptr<SourceSearch> build_forced(const Model& model, const Constraints& constraints,
                                           Tokens target, int source_length);

// The rows that one source can occupy in a step.
int rows_per_source(const DecodingOptions& options);

// Raise if an option is out of range.
void check_options(const DecodingOptions& options);

}  // namespace regard
