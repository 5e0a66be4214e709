// Beam search with early stopping, length penalties and required words.
#include <algorithm>
#include <cmath>

#include "log_softmax.h"

namespace regard {
namespace {

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

  void append_rows(SourceState* state, std::vector<DecoderRow>& rows) override {
    for (std::size_t i = 0; i < beams_.size(); ++i) {
      const Beam& beam = beams_[i];
      const int token = beam.ids.empty() ? constraints_.start()[given_] : beam.ids.back();
      rows.push_back({state, beam.path.data(), static_cast<int>(beam.path.size()),
                      static_cast<int>(i), token, nullptr});
    }
  }

  bool advance(const float* logits, Workspace& workspace) override {
    if (given_ + 1 < constraints_.start().size()) {  // what follows is given, not chosen
      ++given_;
      beams_.front().path.push_back(0);
      return false;
    }
    const int vocabulary = model_.target_vocabulary();
    const int step = static_cast<int>(beams_.front().ids.size());
    const std::size_t size = static_cast<std::size_t>(options_.beam);
    std::vector<Candidate> candidates = find_candidates(logits, workspace);
    std::vector<Candidate> extended;
    for (std::size_t rank = 0; rank < candidates.size(); ++rank) {
      const Candidate& candidate = candidates[rank];
      if (candidate.place % vocabulary == constraints_.end()) {
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

  Tokens committed_prefix() const override {
    Tokens shared = finished_.empty() ? beams_.front().ids : finished_.front().ids;
    for (const Beam& beam : beams_) {
      const std::size_t most = std::min(shared.size(), beam.ids.size());
      const auto end = shared.begin() + static_cast<std::ptrdiff_t>(most);
      shared.erase(std::mismatch(shared.begin(), end, beam.ids.begin()).first, shared.end());
    }
    return shared;
  }

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
          const int end = constraints_.end();
          top.offer({score + logps[end], first + end, logps[end]});
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
      if (candidate.place % vocabulary == constraints_.end()) {
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
    Hypothesis found{beam.ids, beam.logps, candidate.total / divisor(step + 1), {}};
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
  std::size_t given_ = 0;     // start tokens that the decoder has read
  double worst_ = -INFINITY;  // score of the n_best-th hypothesis; −∞ until there are that many
  std::vector<Beam> beams_;
  std::vector<Hypothesis> finished_;
};

}  // namespace

std::unique_ptr<SourceSearch> build_beam_search(const Model& model, const DecodingOptions& options,
                                                const Constraints& constraints, int limit) {
  return std::make_unique<BeamSearch>(model, options, constraints, limit);
}

}  // namespace regard
