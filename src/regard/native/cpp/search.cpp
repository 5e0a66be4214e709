// Greedy search, sampling and teacher forcing.
#include "search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "log_softmax.h"

namespace regard {
namespace {

// ---- sampling --------------------------------------------------------------------------------

// splitmix64 (Steele et al. 2014), as in regard.search.gumbel.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Gumbel noise that depends on the seed, the step and the token only.
float gumbel(std::int64_t seed, int step, int token) {
  constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ULL;
  const std::uint64_t row =
      mix(static_cast<std::uint64_t>(seed) + static_cast<std::uint64_t>(step + 1) * golden);
  const std::uint64_t mixed = mix(row + static_cast<std::uint64_t>(token) * golden);
  const float uniform = (static_cast<float>(mixed >> 32) + 0.5f) * 0x1p-32f;
  return -std::log(-std::log1p(-std::fmin(uniform, 1.0f - 0x1p-24f)));
}

// The Gumbel-max sample of one row of log-probabilities: argmax(log p + noise).
int sample_token(const DecodingOptions& options, const Kernels& kernels, float* logps,
                 int count, std::int64_t seed, int step) {
  for (int i = 0; i < count; ++i) logps[i] /= static_cast<float>(options.temperature);
  float maximum, log_sum;
  kernels.log_sum_exp(logps, count, &maximum, &log_sum);
  if (maximum == kNever) throw Error(kUnsatisfiable);
  for (int i = 0; i < count; ++i) logps[i] = (logps[i] - maximum) - log_sum;
  std::vector<int> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  std::size_t stay = tokens.size();
  if (options.top_k > 0 || options.top_p < 1.0 || options.min_p > 0.0) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [&](int a, int b) { return logps[a] > logps[b]; });
    const float first = std::exp(logps[tokens[0]]);
    float total = 0.0f;
    stay = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const float share = std::exp(logps[tokens[i]]);
      total += share;
      const bool stays = share >= static_cast<float>(options.min_p) * first &&
                         (options.top_p >= 1.0 || total - share < options.top_p) &&
                         (options.top_k == 0 || static_cast<int>(i) < options.top_k);
      stay += stays ? 1 : 0;
    }
    stay = std::max<std::size_t>(stay, 1);
  }
  int best = tokens[0];
  float highest = kNever;
  for (std::size_t i = 0; i < stay; ++i) {
    const float value = logps[tokens[i]] + gumbel(seed, step, tokens[i]);
    if (value > highest) {
      highest = value;
      best = tokens[i];
    }
  }
  return best;
}

// ---- greedy search and sampling --------------------------------------------------------------

// One or several outputs of a source, each extended by one token per step.
class AutoregressiveSearch : public SourceSearch {
 public:
  AutoregressiveSearch(const Model& model, const DecodingOptions& options,
                       const Constraints& constraints, int limit, const std::int64_t* seeds)
      : model_(model), options_(options), constraints_(constraints), limit_(limit) {
    const int copies = options.sample ? options.n_best : 1;
    for (int i = 0; i < copies; ++i) {
      outputs_.push_back({{}, {}, {}, options.sample ? seeds[i] : 0, false});
    }
  }

  void append_rows(SourceState* state, std::vector<DecoderRow>& rows) override {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Output& output = outputs_[i];
      if (output.finished) continue;
      const int token = output.ids.empty() ? constraints_.start()[given_] : output.ids.back();
      rows.push_back({state, output.path.data(), static_cast<int>(output.path.size()),
                      static_cast<int>(i), token, nullptr});
    }
  }

  bool advance(const float* logits, Workspace& workspace) override {
    if (given_ + 1 < constraints_.start().size()) {  // what follows is given, not chosen
      ++given_;
      for (std::size_t i = 0; i < outputs_.size(); ++i) {
        outputs_[i].path.push_back(static_cast<int>(i));
      }
      return false;
    }
    const int vocabulary = model_.target_vocabulary();
    bool finished = true;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      Output& output = outputs_[i];
      if (output.finished) continue;
      const LogSoftmax logps(model_.kernels(), logits, vocabulary);
      const int token = choose(output, logps, workspace);
      logits += vocabulary;
      output.logps.push_back(logps[token]);
      output.finished = token == constraints_.end();
      if (output.finished) continue;
      output.ids.push_back(token);
      output.path.push_back(static_cast<int>(i));
      finished = false;
    }
    return finished;
  }

  std::vector<Hypothesis> take_results() override {
    std::vector<Hypothesis> found;
    for (Output& output : outputs_) {
      double score = 0.0;
      for (float logp : output.logps) score += logp;
      found.push_back({std::move(output.ids), std::move(output.logps), score, {}});
    }
    return found;
  }

  Tokens committed_prefix() const override { return outputs_.front().ids; }

 private:
  struct Output {
    Tokens ids;
    std::vector<float> logps;
    std::vector<int> path;
    std::int64_t seed;
    bool finished;
  };

  int choose(const Output& output, const LogSoftmax& logps, Workspace& workspace) const {
    const int vocabulary = model_.target_vocabulary();
    const int step = static_cast<int>(output.ids.size());
    const bool at_limit = limit_ <= step;
    if (!constraints_.any() && at_limit) return constraints_.end();
    if (!constraints_.any() && !options_.sample) return argmax(logps.logits, vocabulary);
    float* allowed = workspace.allowed.reserve(static_cast<std::size_t>(vocabulary));
    logps.allowed(constraints_, output.ids, at_limit, vocabulary, allowed);
    if (options_.sample) {
      return sample_token(options_, model_.kernels(), allowed, vocabulary, output.seed, step);
    }
    const int best = argmax(allowed, vocabulary);
    if (allowed[best] == kNever) throw Error(kUnsatisfiable);
    return best;
  }

  const Model& model_;
  const DecodingOptions& options_;
  const Constraints& constraints_;
  const int limit_;
  std::size_t given_ = 0;  // start tokens that the decoder has read
  std::vector<Output> outputs_;
};

// ---- teacher forcing -------------------------------------------------------------------------

class ForcedSearch : public SourceSearch {
 public:
  ForcedSearch(const Model& model, const Constraints& constraints, Tokens target,
               int source_length)
      : model_(model),
        start_(constraints.start()),
        end_(constraints.end()),
        target_(std::move(target)),
        source_length_(static_cast<std::size_t>(source_length)),
        path_(target_.size() + start_.size(), 0),
        alignment_((target_.size() + 1) * source_length_, 0.0f) {}

  void append_rows(SourceState* state, std::vector<DecoderRow>& rows) override {
    const std::size_t step = logps_.size();
    const bool aligned = source_length_ > 0 && given_ + 1 == start_.size();
    float* alignment = aligned ? &alignment_[step * source_length_] : nullptr;
    rows.push_back({state, path_.data(), static_cast<int>(given_ + step), 0,
                    step == 0 ? start_[given_] : target_[step - 1], alignment});
  }

  bool advance(const float* logits, Workspace&) override {
    if (given_ + 1 < start_.size()) {  // what follows is given, not predicted
      ++given_;
      return false;
    }
    const LogSoftmax logps(model_.kernels(), logits, model_.target_vocabulary());
    const std::size_t step = logps_.size();
    logps_.push_back(logps[step < target_.size() ? target_[step] : end_]);
    return step == target_.size();
  }

  std::vector<Hypothesis> take_results() override {
    const double score = std::accumulate(logps_.begin(), logps_.end(), 0.0);
    std::vector<Hypothesis> found;
    found.push_back({std::move(target_), std::move(logps_), score, std::move(alignment_)});
    return found;
  }

  Tokens committed_prefix() const override { return target_; }

 private:
  const Model& model_;
  const Tokens start_;
  const int end_;
  std::size_t given_ = 0;  // start tokens that the decoder has read
  Tokens target_;
  const std::size_t source_length_;
  const std::vector<int> path_;  // all tokens are in slot 0
  std::vector<float> logps_;
  std::vector<float> alignment_;
};

}  // namespace

std::unique_ptr<SourceSearch> build_forced(const Model& model, const Constraints& constraints,
                                           Tokens target, int source_length) {
  return std::make_unique<ForcedSearch>(model, constraints, std::move(target), source_length);
}

std::unique_ptr<SourceSearch> build_search(const Model& model, const DecodingOptions& options,
                                           const Constraints& constraints, int limit,
                                           const std::int64_t* seeds) {
  const bool single = options.beam == 1 && options.n_best == 1 && constraints.required().empty();
  if (options.sample || (single && options.length_alpha == 0.0)) {
    return std::make_unique<AutoregressiveSearch>(model, options, constraints, limit, seeds);
  }
  return build_beam_search(model, options, constraints, limit);
}

int rows_per_source(const DecodingOptions& options) {
  return options.sample ? options.n_best : options.beam;
}

void check_options(const DecodingOptions& options) {
  const auto require = [](bool good, const char* what) {
    if (!good) throw Error(std::string("the decoding options are invalid: ") + what);
  };
  constexpr int most = 1 << 16;
  require(options.beam >= 1 && options.beam <= most, "beam");
  require(options.n_best >= 1 && options.n_best <= most, "n_best");
  require(options.sample || options.n_best <= options.beam, "n_best is larger than beam");
  require(std::isfinite(options.length_alpha), "length penalty");
  require(options.repetition_penalty > 0.0, "repetition penalty");
  require(!options.sample || options.temperature > 0.0, "temperature");
  require(options.top_p > 0.0 && options.min_p >= 0.0 && options.top_k >= 0, "sampling");
  require(options.prefix_count >= 0 && options.prefix_count <= 1, "prefix");
  require(options.never_count >= 0 && options.never_count <= 1, "tokens never generated");
  require(options.ends[0] >= 1 && options.ends[0] <= most, "start tokens");
  require(options.ban_count >= 0 && options.required_count >= 0, "sequences");
}

}  // namespace regard
