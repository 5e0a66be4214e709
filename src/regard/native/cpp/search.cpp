// Greedy search, sampling and beam search.
#include "search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace regard {
namespace {

const float kNever = -INFINITY;
const char* const kNotFinite =
    "the model's outputs are not finite (NaN); it cannot be used";
const char* const kUnsatisfiable =
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
      if (token != kEnd) to[token] = kNever;
    }
  }

  const float* logits;
  float maximum = 0.0f;
  float log_sum = 0.0f;
};

int argmax(const float* values, int count) {
  int best = 0;
  for (int i = 1; i < count; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

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

  void append_rows(SourceState* state, std::vector<DecoderRow>& rows) const override {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Output& output = outputs_[i];
      if (output.finished) continue;
      const int token = output.ids.empty() ? kBegin : output.ids.back();
      rows.push_back({state, output.path.data(), static_cast<int>(output.ids.size()),
                      static_cast<int>(i), token});
    }
  }

  bool advance(const float* logits, Workspace& workspace) override {
    const int vocabulary = model_.target_vocabulary();
    bool finished = true;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      Output& output = outputs_[i];
      if (output.finished) continue;
      const LogSoftmax logps(model_.kernels(), logits, vocabulary);
      const int token = choose(output, logps, workspace);
      logits += vocabulary;
      output.logps.push_back(logps[token]);
      output.finished = token == kEnd;
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
      found.push_back({std::move(output.ids), std::move(output.logps), score});
    }
    return found;
  }

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
    if (!constraints_.any() && at_limit) return kEnd;
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
  std::vector<Output> outputs_;
};

// ---- beam search -----------------------------------------------------------------------------

// A continuation of a beam: its total log-probability, and its place in (beam × vocabulary).
struct Candidate {
  double total;
  int place;
  float logp;
};

// Best first; of equal totals, the first place.
bool is_better(const Candidate& a, const Candidate& b) {
  return a.total > b.total || (a.total == b.total && a.place < b.place);
}

// The best `count` candidates seen so far, as a heap with the worst on top.
class TopCandidates {
 public:
  explicit TopCandidates(std::size_t count) : count_(count) {}

  bool accepts(double total) const {
    return kept_.size() < count_ || total > kept_.front().total;
  }

  void offer(const Candidate& candidate) {
    if (kept_.size() == count_) {
      if (!is_better(candidate, kept_.front())) return;
      std::pop_heap(kept_.begin(), kept_.end(), is_better);
      kept_.pop_back();
    }
    kept_.push_back(candidate);
    std::push_heap(kept_.begin(), kept_.end(), is_better);
  }

  std::vector<Candidate> sorted() {
    std::sort(kept_.begin(), kept_.end(), is_better);
    return std::move(kept_);
  }

 private:
  std::size_t count_;
  std::vector<Candidate> kept_;
};

class BeamSearch : public SourceSearch {
 public:
  BeamSearch(const Model& model, const DecodingOptions& options, const Constraints& constraints,
             int limit)
      : model_(model), options_(options), constraints_(constraints), limit_(limit) {
    beams_.push_back({});
  }

  void append_rows(SourceState* state, std::vector<DecoderRow>& rows) const override {
    for (std::size_t i = 0; i < beams_.size(); ++i) {
      const Beam& beam = beams_[i];
      const int token = beam.ids.empty() ? kBegin : beam.ids.back();
      rows.push_back({state, beam.path.data(), static_cast<int>(beam.ids.size()),
                      static_cast<int>(i), token});
    }
  }

  bool advance(const float* logits, Workspace& workspace) override {
    const int vocabulary = model_.target_vocabulary();
    const int step = static_cast<int>(beams_.front().ids.size());
    const std::size_t size = static_cast<std::size_t>(options_.beam);
    std::vector<Candidate> candidates = find_candidates(logits, workspace);
    std::vector<Candidate> extended;
    for (std::size_t rank = 0; rank < candidates.size(); ++rank) {
      const Candidate& candidate = candidates[rank];
      if (candidate.place % vocabulary == kEnd) {
        if (rank < size) finish(candidate, step);
      } else if (extended.size() < size) {
        extended.push_back(candidate);
      }
    }
    if (extended.empty() || limit_ <= step) return true;
    // A sum only decreases; its largest possible divisor is that of the shortest or longest end.
    const double reach =
        extended.front().total / std::max(divisor(limit_ + 1), divisor(step + 2));
    if (!(reach > worst_)) return true;
    extend(extended);
    return false;
  }

  std::vector<Hypothesis> take_results() override { return std::move(finished_); }

 private:
  struct Beam {
    Tokens ids;
    std::vector<float> logps;
    std::vector<int> path;
    double score = 0.0;
  };

  double divisor(int length) const {
    const double base = options_.gnmt ? (5.0 + length) / 6.0 : length;
    return std::pow(base, options_.length_alpha);
  }

  // The best continuations of all beams, best first; none that is forbidden.
  std::vector<Candidate> find_candidates(const float* logits, Workspace& workspace) const {
    const int vocabulary = model_.target_vocabulary();
    const std::size_t size = static_cast<std::size_t>(options_.beam);
    const bool at_limit = limit_ <= static_cast<int>(beams_.front().ids.size());
    const LexicalConstraints& required = constraints_.required();
    TopCandidates top(2 * size);  // each beam ends at most once, so `size` are left to extend
    std::vector<Candidate> wanted;
    for (std::size_t i = 0; i < beams_.size(); ++i, logits += vocabulary) {
      const LogSoftmax logps(model_.kernels(), logits, vocabulary);
      const int first = static_cast<int>(i) * vocabulary;
      const double score = beams_[i].score;
      if (!constraints_.any()) {
        if (at_limit) {
          top.offer({score + logps[kEnd], first + kEnd, logps[kEnd]});
          continue;
        }
        for (int token = 0; token < vocabulary; ++token) {
          const float logp = logps[token];
          if (top.accepts(score + logp)) top.offer({score + logp, first + token, logp});
        }
        continue;
      }
      float* allowed = workspace.allowed.reserve(static_cast<std::size_t>(vocabulary));
      logps.allowed(constraints_, beams_[i].ids, at_limit, vocabulary, allowed);
      const auto candidate = [&](int token) {
        return Candidate{score + allowed[token], first + token, logps[token]};
      };
      for (int token = 0; token < vocabulary; ++token) {
        if (allowed[token] > kNever) top.offer(candidate(token));
      }
      if (required.empty()) continue;
      Tokens tokens = required.needed(beams_[i].ids);
      tokens.push_back(argmax(allowed, vocabulary));  // so that complete hypotheses can end
      for (int token : tokens) {
        if (allowed[token] > kNever) wanted.push_back(candidate(token));
      }
    }
    return required.empty() ? top.sorted() : pick_by_bank(top.sorted(), std::move(wanted));
  }

  // With required tokens: candidates that end, then the best others in turn from each bank. A
  // bank holds the candidates with the same number of required tokens; the fullest comes first.
  std::vector<Candidate> pick_by_bank(std::vector<Candidate> top,
                                      std::vector<Candidate> wanted) const {
    const int vocabulary = model_.target_vocabulary();
    const std::size_t size = static_cast<std::size_t>(options_.beam);
    const auto by_total = [](const Candidate& a, const Candidate& b) {
      return a.total > b.total || (a.total == b.total && a.place > b.place);
    };
    top.insert(top.end(), wanted.begin(), wanted.end());
    std::sort(top.begin(), top.end(), by_total);
    top.erase(std::unique(top.begin(), top.end(),
                          [](const Candidate& a, const Candidate& b) { return a.place == b.place; }),
              top.end());
    std::vector<Candidate> ends, kept;
    std::vector<std::vector<Candidate>> banks(
        static_cast<std::size_t>(constraints_.required().total()) + 1);
    for (const Candidate& candidate : top) {
      if (candidate.place % vocabulary == kEnd) {
        if (ends.size() < size) ends.push_back(candidate);
        continue;
      }
      Tokens ids = beams_[static_cast<std::size_t>(candidate.place / vocabulary)].ids;
      ids.push_back(candidate.place % vocabulary);
      banks[static_cast<std::size_t>(constraints_.required().met(ids))].push_back(candidate);
    }
    bool more = true;
    for (std::size_t turn = 0; more && kept.size() < size; ++turn) {
      more = false;
      for (auto bank = banks.rbegin(); bank != banks.rend(); ++bank) {
        if (turn >= bank->size()) continue;
        more = true;
        kept.push_back((*bank)[turn]);
      }
    }
    if (kept.size() > size) kept.resize(size);
    std::sort(kept.begin(), kept.end(), by_total);
    ends.insert(ends.end(), kept.begin(), kept.end());
    return ends;
  }

  // Keep a hypothesis that ends, if it is among the n_best.
  void finish(const Candidate& candidate, int step) {
    const Beam& beam = beams_[static_cast<std::size_t>(candidate.place) /
                              static_cast<std::size_t>(model_.target_vocabulary())];
    Hypothesis found{beam.ids, beam.logps, candidate.total / divisor(step + 1)};
    found.logps.push_back(candidate.logp);
    const auto place = std::upper_bound(
        finished_.begin(), finished_.end(), found,
        [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    finished_.insert(place, std::move(found));
    const std::size_t most = static_cast<std::size_t>(options_.n_best);
    if (finished_.size() > most) finished_.pop_back();
    if (finished_.size() == most) worst_ = finished_.back().score;
  }

  void extend(const std::vector<Candidate>& extended) {
    const int vocabulary = model_.target_vocabulary();
    std::vector<Beam> next;
    for (const Candidate& candidate : extended) {
      const int parent = candidate.place / vocabulary;
      Beam beam = beams_[static_cast<std::size_t>(parent)];
      beam.ids.push_back(candidate.place % vocabulary);
      beam.logps.push_back(candidate.logp);
      beam.path.push_back(parent);
      beam.score = candidate.total;
      next.push_back(std::move(beam));
    }
    beams_ = std::move(next);
  }

  const Model& model_;
  const DecodingOptions& options_;
  const Constraints& constraints_;
  const int limit_;
  double worst_ = -INFINITY;  // score of the n_best-th hypothesis; −∞ until there are that many
  std::vector<Beam> beams_;
  std::vector<Hypothesis> finished_;
};

}  // namespace

std::unique_ptr<SourceSearch> build_search(const Model& model, const DecodingOptions& options,
                                           const Constraints& constraints, int limit,
                                           const std::int64_t* seeds) {
  const bool single = options.beam == 1 && options.n_best == 1 && constraints.required().empty();
  if (options.sample || (single && options.length_alpha == 0.0)) {
    return std::make_unique<AutoregressiveSearch>(model, options, constraints, limit, seeds);
  }
  return std::make_unique<BeamSearch>(model, options, constraints, limit);
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
  require(options.ban_count >= 0 && options.required_count >= 0, "sequences");
}

}  // namespace regard
