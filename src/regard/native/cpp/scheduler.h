// Distributes sources over threads.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "search.h"

namespace regard {

// A source to search; `seeds` has n_best values where the options sample. With a target (`limit`
// tokens), its log-probabilities are computed instead, and its alignment if `align`. The hypotheses
// become results[index].
struct Task {
  Source source;
  int limit;
  const std::int64_t* seeds;
  std::size_t index;
  const std::int32_t* target = nullptr;
  bool align = false;
};

using Results = std::vector<std::vector<Hypothesis>>;

// Scratch memory of threads, reused by later searches.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> borrow();
  void give_back(std::unique_ptr<Workspace> workspace);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

// Search all sources with at most `threads` threads, of which the caller's is one. A request of
// `cancellation`, if not null, stops them with an error.
void decode_all(const Model& model, WorkspacePool& workspaces, const DecodingOptions& options,
                std::vector<Task> tasks, int threads, const Cancellation* cancellation,
                Results& results);

}  // namespace regard
