// Constraints, in the same order as regard.search.constraint_parsing builds them.
#include "constraints.h"

#include <algorithm>
#include <cmath>

namespace regard {
namespace {

constexpr float kNever = -INFINITY;

bool contains(const Tokens& ids, const Tokens& sequence) {
  return std::search(ids.begin(), ids.end(), sequence.begin(), sequence.end()) != ids.end();
}

bool starts_with(const Tokens& ids, const Tokens& start) {
  return ids.size() >= start.size() && std::equal(start.begin(), start.end(), ids.begin());
}

// Whether the output so far is a proper prefix of the opening form.
bool opens(const Tokens& ids, const Tokens& opening) {
  return ids.size() < opening.size() && starts_with(opening, ids);
}

// How many leading tokens of the sequence the output ends with; never all.
int begun(const Tokens& ids, const Tokens& sequence) {
  for (std::size_t count = std::min(ids.size(), sequence.size() - 1); count > 0; --count) {
    if (std::equal(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), sequence.begin())) {
      return static_cast<int>(count);
    }
  }
  return 0;
}

void allow_only(float* logps, int vocabulary, int token) {
  const float kept = logps[token];
  std::fill(logps, logps + vocabulary, kNever);
  logps[token] = kept;
}

}  // namespace

int LexicalConstraints::total() const {
  std::size_t count = 0;
  for (const Tokens& sequence : sequences) count += sequence.size();
  return static_cast<int>(count);
}

bool LexicalConstraints::is_missing(std::size_t index, const Tokens& ids) const {
  return !contains(ids, sequences[index]) && !starts_with(ids, opening[index]);
}

int LexicalConstraints::met(const Tokens& ids) const {
  int missing = 0, in_progress = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (!is_missing(i, ids)) continue;
    const int length = static_cast<int>(sequences[i].size());
    missing += length;
    const int opened =
        opens(ids, opening[i]) ? std::min(static_cast<int>(ids.size()), length - 1) : 0;
    in_progress = std::max({in_progress, opened, begun(ids, sequences[i])});
  }
  return total() - missing + in_progress;
}

Tokens LexicalConstraints::needed(const Tokens& ids) const {
  Tokens found;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (!is_missing(i, ids)) continue;
    if (opens(ids, opening[i])) found.push_back(opening[i][ids.size()]);
    found.push_back(sequences[i][static_cast<std::size_t>(begun(ids, sequences[i]))]);
    found.push_back(sequences[i][0]);
  }
  return found;
}

Constraints::Constraints(const DecodingOptions& options, int vocabulary)
    : options_(options), vocabulary_(vocabulary) {
  int next = 0, start = 0;
  const auto sequence = [&]() {
    const int end = options.ends[next++];
    if (end <= start) throw Error("a token sequence of the decoding options is empty");
    Tokens ids(options.ids + start, options.ids + end);
    start = end;
    for (int id : ids) {
      if (id < 0 || id >= vocabulary) {
        throw Error("token " + std::to_string(id) + " is not in the target vocabulary");
      }
    }
    return ids;
  };
  if (options.end < 0 || options.end >= vocabulary) {
    throw Error("the end token is not in the target vocabulary");
  }
  start_ = sequence();
  if (options.never_count > 0) never_ = sequence();
  if (options.prefix_count > 0) prefix_ = sequence();
  for (int i = 0; i < options.ban_count; ++i) banned_.push_back(sequence());
  for (int i = 0; i < options.required_count; ++i) required_.sequences.push_back(sequence());
  for (int i = 0; i < options.required_count; ++i) required_.opening.push_back(sequence());
  any_ = options.min_length > 0 || options.max_length >= 0 || options.no_repeat_ngram > 0 ||
         options.repetition_penalty != 1.0 || !prefix_.empty() || !banned_.empty() ||
         !never_.empty();
}

void Constraints::apply(const Tokens& so_far, float* logps) const {
  const int length = static_cast<int>(so_far.size());
  for (int token : never_) logps[token] = kNever;
  if (length < options_.min_length) logps[end()] = kNever;
  if (options_.max_length >= 0 && length >= options_.max_length) {
    allow_only(logps, vocabulary_, end());
  }
  if (so_far.size() < prefix_.size()) allow_only(logps, vocabulary_, prefix_[so_far.size()]);
  for (const Tokens& banned : banned_) {
    const std::size_t start = banned.size() - 1;
    if (start <= so_far.size() && std::equal(so_far.end() - static_cast<std::ptrdiff_t>(start),
                                             so_far.end(), banned.begin())) {
      logps[banned.back()] = kNever;
    }
  }
  if (options_.repetition_penalty != 1.0) {
    Tokens seen = so_far;
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (int token : seen) logps[token] *= static_cast<float>(options_.repetition_penalty);
  }
  const int n = options_.no_repeat_ngram;
  if (n > 0 && length >= n) {
    const auto recent = so_far.end() - (n - 1);
    for (auto gram = so_far.begin(); gram + n <= so_far.end(); ++gram) {
      if (std::equal(recent, so_far.end(), gram)) logps[*(gram + n - 1)] = kNever;
    }
  }
  if (!required_.empty() && required_.met(so_far) < required_.total()) logps[end()] = kNever;
}

}  // namespace regard
