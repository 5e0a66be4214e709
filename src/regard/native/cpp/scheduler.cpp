// Threads and batches.
//
// Threads share one queue of sources, longest first, or dealt in turn if one batch per thread is
// enough for all. Each thread decodes its own batch and refills it from the queue; when the queue
// is empty, a thread without work takes over half of another's batch. No thread waits for another
// while it has work, so a busy neighbour process costs only the CPU time it takes. Results do not
// depend on which sources are decoded together.
#include "scheduler.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>

#include "thread_pool.h"

namespace regard {
namespace {

constexpr std::size_t kBatchRows = 64;  // rows of a decoder step
constexpr int kEncoderRows = 512;       // source tokens that are encoded together

// A source that is being decoded.
struct Active {
  std::size_t index;
  std::unique_ptr<SourceState> state;
  std::unique_ptr<SourceSearch> search;
};

// The work of one search, shared by its threads.
class SharedWork {
 public:
  SharedWork(std::vector<Task> tasks, std::size_t threads, std::size_t capacity)
      : tasks_(std::move(tasks)), working_(threads) {
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const Task& a, const Task& b) {
      return a.source.length > b.source.length;
    });
    if (tasks_.size() <= threads * capacity) deal(threads);
  }

  // The longest sources that are left: at most `most`, and as many as fit into an encoder batch.
  std::vector<Task> take(std::size_t most) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Task> taken;
    int tokens = 0;
    while (next_ < tasks_.size() && taken.size() < most &&
           (taken.empty() || tokens + tasks_[next_].source.length <= kEncoderRows)) {
      tokens += tasks_[next_].source.length;
      taken.push_back(tasks_[next_++]);
    }
    return taken;
  }

  // Give half of a batch to a thread without work, if there is one.
  void share(std::vector<Active>& active) {
    if (idle_.load(std::memory_order_relaxed) == 0 || active.size() < 2) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.load() <= shared_.size()) return;  // each has got something already
    const auto middle = active.end() - static_cast<std::ptrdiff_t>(active.size() / 2);
    shared_.emplace_back(std::make_move_iterator(middle), std::make_move_iterator(active.end()));
    active.erase(middle, active.end());
    changed_.notify_one();
  }

  // What another thread shares; empty when all work is done.
  std::vector<Active> wait_for_share() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (shared_.empty()) {
      if (--working_ == 0) changed_.notify_all();
      ++idle_;
      changed_.wait(lock, [&] { return failed_ || working_ == 0 || !shared_.empty(); });
      --idle_;
      if (shared_.empty()) return {};
      ++working_;
    }
    std::vector<Active> got = std::move(shared_.back());
    shared_.pop_back();
    return got;
  }

  // Some threads could not be started.
  void dismiss(std::size_t threads) {
    std::lock_guard<std::mutex> lock(mutex_);
    working_ -= threads;
    changed_.notify_all();
  }

  // Record a failure; the other threads stop.
  void fail(std::exception_ptr failure) {
    std::lock_guard<std::mutex> lock(mutex_);
    next_ = tasks_.size();
    shared_.clear();
    failed_ = true;
    if (!failure_) failure_ = failure;
    changed_.notify_all();
  }

  bool failed() const { return failed_; }
  std::exception_ptr failure() const { return failure_; }

 private:
  // Reorder tasks that are all taken at once: each thread gets long and short ones alike.
  void deal(std::size_t threads) {
    std::vector<Task> dealt;
    for (std::size_t first = 0; first < threads; ++first) {
      for (std::size_t i = first; i < tasks_.size(); i += threads) dealt.push_back(tasks_[i]);
    }
    tasks_ = std::move(dealt);
  }

  std::vector<Task> tasks_;
  std::size_t next_ = 0;
  std::vector<std::vector<Active>> shared_;
  std::size_t working_;  // threads that are not idle
  std::atomic<std::size_t> idle_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// One thread of a search.
class Decoder {
 public:
  Decoder(const Model& model, const DecodingOptions& options, const Constraints& constraints,
          std::size_t capacity, SharedWork& work, Results& results, Workspace& workspace)
      : model_(model),
        options_(options),
        constraints_(constraints),
        capacity_(capacity),
        work_(work),
        results_(results),
        workspace_(workspace) {}

  void run() {
    while (!work_.failed()) {
      workspace_.check_cancelled();
      // A batch is refilled when a quarter of it is free: large encoder batches are faster.
      if (active_.size() <= capacity_ * 3 / 4) refill();
      if (active_.empty()) active_ = work_.wait_for_share();
      if (active_.empty()) return;
      step();
      work_.share(active_);
    }
  }

 private:
  void refill() {
    while (more_ && active_.size() < capacity_) {
      const std::vector<Task> tasks = work_.take(capacity_ - active_.size());
      more_ = !tasks.empty();
      if (!more_) return;
      std::vector<Source> sources;
      for (const Task& task : tasks) sources.push_back(task.source);
      auto states = model_.encode(sources, rows_per_source(options_), workspace_);
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        active_.push_back({tasks[i].index, std::move(states[i]), start(tasks[i])});
      }
    }
  }

  std::unique_ptr<SourceSearch> start(const Task& task) const {
    if (task.target == nullptr) {
      return build_search(model_, options_, constraints_, task.limit, task.seeds);
    }
    return build_forced(model_, constraints_, Tokens(task.target, task.target + task.limit),
                        task.align ? task.source.length : 0);
  }

  // One decoder step of all active sources; finished ones leave the batch.
  void step() {
    const std::size_t vocabulary = static_cast<std::size_t>(model_.target_vocabulary());
    rows_.clear();
    starts_.clear();
    for (const Active& each : active_) {
      starts_.push_back(rows_.size());
      each.search->append_rows(each.state.get(), rows_);
    }
    float* logits = workspace_.logits.reserve(rows_.size() * vocabulary);
    model_.step(rows_, logits, workspace_);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      if (active_[i].search->advance(logits + starts_[i] * vocabulary, workspace_)) {
        results_[active_[i].index] = active_[i].search->take_results();
      } else {
        if (kept != i) active_[kept] = std::move(active_[i]);
        ++kept;
      }
    }
    active_.resize(kept);
  }

  const Model& model_;
  const DecodingOptions& options_;
  const Constraints& constraints_;
  const std::size_t capacity_;  // most sources of a batch
  SharedWork& work_;
  Results& results_;
  Workspace& workspace_;
  bool more_ = true;  // whether the queue may have more
  std::vector<Active> active_;
  std::vector<DecoderRow> rows_;
  std::vector<std::size_t> starts_;
};

}  // namespace

std::unique_ptr<Workspace> WorkspacePool::borrow() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) return std::make_unique<Workspace>();
  std::unique_ptr<Workspace> workspace = std::move(free_.back());
  free_.pop_back();
  return workspace;
}

void WorkspacePool::give_back(std::unique_ptr<Workspace> workspace) {
  workspace->cancellation = nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(std::move(workspace));
}

void decode_all(const Model& model, WorkspacePool& workspaces, const DecodingOptions& options,
                std::vector<Task> tasks, int threads, const Cancellation* cancellation,
                Results& results) {
  if (tasks.empty()) return;
  const Constraints constraints(options, model.target_vocabulary());
  const std::size_t sources = tasks.size();
  const std::size_t count = std::min(static_cast<std::size_t>(threads), sources);
  // Full batches, but no thread takes more than its share.
  const std::size_t full = kBatchRows / static_cast<std::size_t>(rows_per_source(options));
  const std::size_t capacity =
      std::min(std::max<std::size_t>(full, 1), (sources + count - 1) / count);
  SharedWork shared(std::move(tasks), count, capacity);
  const auto work = [&]() noexcept {
    std::unique_ptr<Workspace> workspace;
    try {
      workspace = workspaces.borrow();
      workspace->cancellation = cancellation;
      Decoder(model, options, constraints, capacity, shared, results, *workspace).run();
    } catch (...) {
      shared.fail(std::current_exception());
    }
    if (workspace) workspaces.give_back(std::move(workspace));
  };
  const std::function<void()> in_pool = work;
  ThreadPool& pool = ThreadPool::shared();
  ThreadPool::Group others;
  if (count > 1) shared.dismiss(count - 1 - pool.start(count - 1, in_pool, others));
  work();
  pool.wait(others);
  if (shared.failure()) std::rethrow_exception(shared.failure());
}

}  // namespace regard
