// The engine: a model, its threads and the C interface.
//
// Threads share one queue of sources, longest first. Each thread decodes its own batch and refills
// it from the queue, so no thread ever waits for another: a busy neighbour process costs only the
// CPU time it takes. Results do not depend on which sources are decoded together.
#include "engine.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

#include "search.h"

#ifndef REGARD_SOURCE_DIGEST
#define REGARD_SOURCE_DIGEST ""
#endif

namespace regard {

constexpr int kBatchRows = 64;      // rows of a decoder step
constexpr int kRefillRows = 48;     // at most this many rows left: refill the batch
constexpr int kEncoderRows = 512;   // source tokens that are encoded together
constexpr int kMostThreads = 1024;

class Engine {
 public:
  explicit Engine(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  const Model& model() const { return *model_; }

  // Scratch memory is reused by later searches.
  std::unique_ptr<Workspace> borrow_workspace() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }

  void return_workspace(std::unique_ptr<Workspace> workspace) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::unique_ptr<Model> model_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

namespace {

struct Task {
  Source source;
  int limit;
  const std::int64_t* seeds;
  std::size_t index;
};

// Sources that no thread has taken yet, longest first.
class TaskQueue {
 public:
  TaskQueue(std::vector<Task> tasks, int threads) : tasks_(std::move(tasks)), threads_(threads) {
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const Task& a, const Task& b) {
      return a.source.length > b.source.length;
    });
  }

  // At most `most` tasks that fit into one encoder batch. While several threads share the queue,
  // each takes a fraction of what is left, so that all finish at about the same time.
  std::vector<Task> take(std::size_t most) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t left = tasks_.size() - next_;
    if (threads_ > 1) {
      const std::size_t share = 2 * static_cast<std::size_t>(threads_);
      most = std::min(most, (left + share - 1) / share);
    }
    std::vector<Task> taken;
    int tokens = 0;
    while (next_ < tasks_.size() && taken.size() < most &&
           (taken.empty() || tokens + tasks_[next_].source.length <= kEncoderRows)) {
      tokens += tasks_[next_].source.length;
      taken.push_back(tasks_[next_++]);
    }
    return taken;
  }

  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    next_ = tasks_.size();
  }

 private:
  std::vector<Task> tasks_;
  const int threads_;
  std::size_t next_ = 0;
  std::mutex mutex_;
};

using Results = std::vector<std::vector<Hypothesis>>;

// One thread: decode batches until the queue is empty.
void decode(const Model& model, const DecodingOptions& options, const Constraints& constraints,
            TaskQueue& queue, Results& results, Workspace& workspace) {
  struct Active {
    std::size_t index;
    std::unique_ptr<SourceState> state;
    std::unique_ptr<SourceSearch> search;
  };
  const std::size_t width = static_cast<std::size_t>(rows_per_source(options));
  const std::size_t capacity = std::max<std::size_t>(1, kBatchRows / width);
  const std::size_t vocabulary = static_cast<std::size_t>(model.target_vocabulary());
  std::vector<Active> active;
  std::vector<DecoderRow> rows;
  bool more = true;
  while (true) {
    const bool refill = active.empty() || active.size() * width <= kRefillRows;
    while (refill && more && active.size() < capacity) {
      const std::vector<Task> tasks = queue.take(capacity - active.size());
      more = !tasks.empty();
      if (!more) break;
      std::vector<Source> sources;
      for (const Task& task : tasks) sources.push_back(task.source);
      auto states = model.encode(sources, static_cast<int>(width), workspace);
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        active.push_back({tasks[i].index, std::move(states[i]),
                          build_search(model, options, constraints, tasks[i].limit,
                                       tasks[i].seeds)});
      }
    }
    if (active.empty()) return;
    rows.clear();
    std::vector<std::size_t> starts;
    for (const Active& each : active) {
      starts.push_back(rows.size());
      each.search->append_rows(each.state.get(), rows);
    }
    float* logits = workspace.logits.reserve(rows.size() * vocabulary);
    model.step(rows, logits, workspace);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < active.size(); ++i) {
      if (active[i].search->advance(logits + starts[i] * vocabulary, workspace)) {
        results[active[i].index] = active[i].search->take_results();
      } else {
        if (kept != i) active[kept] = std::move(active[i]);
        ++kept;
      }
    }
    active.resize(kept);
  }
}

void decode_all(Engine& engine, const DecodingOptions& options, std::vector<Task> tasks,
                int threads, Results& results) {
  const Constraints constraints(options, engine.model().target_vocabulary());
  threads = std::min<int>(threads, static_cast<int>(std::min<std::size_t>(tasks.size(), 1024)));
  TaskQueue queue(std::move(tasks), threads);
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&]() noexcept {
    std::unique_ptr<Workspace> workspace;
    try {
      workspace = engine.borrow_workspace();
      decode(engine.model(), options, constraints, queue, results, *workspace);
    } catch (...) {
      queue.clear();
      std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    if (workspace) engine.return_workspace(std::move(workspace));
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

std::vector<Task> make_tasks(const Model& model, const DecodingOptions& options,
                             const std::int32_t* ids, const std::int64_t* ends,
                             const std::int32_t* limits, const std::int64_t* seeds,
                             std::int64_t sources) {
  std::vector<Task> tasks;
  std::int64_t start = 0;
  int last = 0;
  for (std::int64_t i = 0; i < sources; ++i) {
    const std::int64_t length = ends[i] - start;
    if (length < 1 || length > (1 << 24) || limits[i] < 0 || limits[i] > (1 << 24)) {
      throw Error("a source must have between 1 and 2^24 tokens, END included");
    }
    for (std::int64_t t = start; t < ends[i]; ++t) {
      if (ids[t] < 0 || ids[t] >= model.source_vocabulary()) {
        throw Error("token " + std::to_string(ids[t]) + " is not in the source vocabulary");
      }
    }
    const std::int64_t* own = options.sample ? seeds + i * options.n_best : nullptr;
    tasks.push_back({{ids + start, static_cast<int>(length)}, limits[i], own,
                     static_cast<std::size_t>(i)});
    last = std::max({last, static_cast<int>(length) - 1, limits[i]});
    start = ends[i];
  }
  model.prepare_position(last);
  return tasks;
}

// Results with the arrays that regard_results points to.
struct OwnedResults : regard_results {
  std::vector<std::int32_t> all_counts, all_lengths, all_ids;
  std::vector<double> all_scores;
  std::vector<float> all_logps;
};

std::unique_ptr<OwnedResults> pack_results(const Results& results) {
  auto packed = std::make_unique<OwnedResults>();
  for (const std::vector<Hypothesis>& found : results) {
    packed->all_counts.push_back(static_cast<std::int32_t>(found.size()));
    for (const Hypothesis& one : found) {
      packed->all_lengths.push_back(static_cast<std::int32_t>(one.ids.size()));
      packed->all_scores.push_back(one.score);
      packed->all_ids.insert(packed->all_ids.end(), one.ids.begin(), one.ids.end());
      packed->all_logps.insert(packed->all_logps.end(), one.logps.begin(), one.logps.end());
    }
  }
  packed->sources = static_cast<std::int64_t>(results.size());
  packed->hypotheses = static_cast<std::int64_t>(packed->all_lengths.size());
  packed->counts = packed->all_counts.data();
  packed->lengths = packed->all_lengths.data();
  packed->scores = packed->all_scores.data();
  packed->ids = packed->all_ids.data();
  packed->logps = packed->all_logps.data();
  return packed;
}

thread_local std::string last_error;

// Run a function of the C interface; failures are recorded and become null.
template <class F>
auto guarded(F function) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "unknown failure";
  }
  return nullptr;
}

}  // namespace
}  // namespace regard

using namespace regard;

const char* regard_error() { return last_error.c_str(); }

const char* regard_source_digest() { return REGARD_SOURCE_DIGEST; }

const char* regard_kernel_name(std::int32_t index) { return kernel_name(index); }

std::int32_t regard_test_kernels(char* report, std::int64_t size) {
  return test_kernels(report, static_cast<std::size_t>(size));
}

Engine* regard_create(const ModelSettings* settings, const regard_tensor* tensors,
                      std::int64_t count, const double* frequencies, std::int64_t frequency_count,
                      const char* kernels) {
  return guarded([&] {
    check_settings(*settings);
    const Kernels* table = find_kernels(kernels);
    if (table == nullptr) {
      throw Error(std::string("this CPU has no kernels named '") + kernels + "'");
    }
    Weights weights;
    for (std::int64_t i = 0; i < count; ++i) {
      weights.add(tensors[i].name, tensors[i].data, tensors[i].shape, tensors[i].rank);
    }
    const std::vector<double> all(frequencies, frequencies + frequency_count);
    std::unique_ptr<Model> model = settings->family == 0
                                       ? build_transformer(*table, *settings, weights, all)
                                       : build_recurrent(*table, *settings, weights);
    weights.check_all_used();
    return std::make_unique<Engine>(std::move(model)).release();
  });
}

void regard_destroy(Engine* engine) { delete engine; }

regard_results* regard_search(Engine* engine, const std::int32_t* ids, const std::int64_t* ends,
                              const std::int32_t* limits, const std::int64_t* seeds,
                              std::int64_t sources, const DecodingOptions* options,
                              std::int32_t threads) {
  return guarded([&]() -> regard_results* {
    check_options(*options);
    std::vector<Task> tasks =
        make_tasks(engine->model(), *options, ids, ends, limits, seeds, sources);
    Results results(static_cast<std::size_t>(sources));
    decode_all(*engine, *options, std::move(tasks), std::clamp(threads, 1, kMostThreads), results);
    return pack_results(results).release();
  });
}

void regard_free_results(regard_results* results) { delete static_cast<OwnedResults*>(results); }
