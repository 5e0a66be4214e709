// The engine: a model with its scratch memory, and the C interface.
#include "engine.h"

#include <algorithm>
#include <exception>
#include <string>

#include "scheduler.h"

#ifndef REGARD_SOURCE_DIGEST
#define REGARD_SOURCE_DIGEST ""
#endif

namespace regard {

constexpr int kMostThreads = 1024;
constexpr int kLongest = 1 << 24;  // tokens of a source or target

class Engine {
 public:
  explicit Engine(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  const Model& model() const { return *model_; }

  WorkspacePool& workspaces() { return workspaces_; }

 private:
  std::unique_ptr<Model> model_;
  WorkspacePool workspaces_;
};

// A search of one source that the caller steps through.
class Stream {
 public:
  Stream(Engine& engine, const DecodingOptions& options, const Task& task)
      : engine_(engine),
        options_(options),
        constraints_(options, engine.model().target_vocabulary()),
        workspace_(engine.workspaces().borrow()) {
    state_ = std::move(engine.model().encode({task.source}, rows_per_source(options_),
                                             *workspace_)[0]);
    search_ = build_search(engine.model(), options_, constraints_, task.limit, nullptr);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { engine_.workspaces().give_back(std::move(workspace_)); }

  bool step() {
    if (finished_) return false;
    const Model& model = engine_.model();
    rows_.clear();
    search_->append_rows(state_.get(), rows_);
    float* logits = workspace_->logits.reserve(rows_.size() *
                                               static_cast<std::size_t>(model.target_vocabulary()));
    model.step(rows_, logits, *workspace_);
    finished_ = search_->advance(logits, *workspace_);
    prefix_ = search_->committed_prefix();
    return !finished_;
  }

  const Tokens& prefix() const { return prefix_; }
  Results results() { return {search_->take_results()}; }

 private:
  Engine& engine_;
  const DecodingOptions options_;
  const Constraints constraints_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<SourceState> state_;
  std::unique_ptr<SourceSearch> search_;
  std::vector<DecoderRow> rows_;
  Tokens prefix_;
  bool finished_ = false;
};

namespace {

// The tokens between two ends of a concatenation, checked.
Source checked_ids(const std::int32_t* ids, std::int64_t start, std::int64_t end, int shortest,
                   int vocabulary, const char* side) {
  const std::int64_t length = end - start;
  if (length < shortest || length > kLongest) {
    throw Error(std::string("a ") + side + " must have between " + std::to_string(shortest) +
                " and 2^24 tokens, special tokens included");
  }
  for (std::int64_t t = start; t < end; ++t) {
    if (ids[t] < 0 || ids[t] >= vocabulary) {
      throw Error("token " + std::to_string(ids[t]) + " is not in the " + side + " vocabulary");
    }
  }
  return {ids + start, static_cast<int>(length)};
}

std::vector<Task> make_tasks(const Model& model, const std::int32_t* ids, const std::int64_t* ends,
                             const std::int32_t* limits, std::int64_t sources,
                             const DecodingOptions& options) {
  std::vector<Task> tasks;
  const int given = options.ends[0] - 1;  // start tokens before the last one
  std::int64_t start = 0;
  int last = 0;
  for (std::int64_t i = 0; i < sources; start = ends[i++]) {
    const Source source =
        checked_ids(ids, start, ends[i], 1, model.source_vocabulary(), "source");
    if (limits[i] < 0 || limits[i] > kLongest) throw Error("a limit is not between 0 and 2^24");
    tasks.push_back({source, limits[i], nullptr, static_cast<std::size_t>(i)});
    last = std::max({last, source.length - 1, limits[i] + given});
  }
  model.prepare_position(last);
  return tasks;
}

std::vector<Task> make_forced_tasks(const Model& model, const std::int32_t* ids,
                                    const std::int64_t* ends, const std::int32_t* targets,
                                    const std::int64_t* target_ends, std::int64_t sources,
                                    const DecodingOptions& options, bool align) {
  std::vector<std::int32_t> lengths;
  std::vector<const std::int32_t*> begins;
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < sources; start = target_ends[i++]) {
    const Source target =
        checked_ids(targets, start, target_ends[i], 0, model.target_vocabulary(), "target");
    lengths.push_back(target.length);
    begins.push_back(target.ids);
  }
  std::vector<Task> tasks = make_tasks(model, ids, ends, lengths.data(), sources, options);
  for (Task& task : tasks) {
    task.target = begins[task.index];
    task.align = align;
  }
  return tasks;
}

// Results with the arrays that regard_results points to.
struct OwnedResults : regard_results {
  std::vector<std::int32_t> all_counts, all_lengths, all_ids;
  std::vector<double> all_scores;
  std::vector<float> all_logps, all_alignments;
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
      packed->all_alignments.insert(packed->all_alignments.end(), one.alignment.begin(),
                                    one.alignment.end());
    }
  }
  packed->sources = static_cast<std::int64_t>(results.size());
  packed->hypotheses = static_cast<std::int64_t>(packed->all_lengths.size());
  packed->counts = packed->all_counts.data();
  packed->lengths = packed->all_lengths.data();
  packed->scores = packed->all_scores.data();
  packed->ids = packed->all_ids.data();
  packed->logps = packed->all_logps.data();
  packed->alignments = packed->all_alignments.data();
  return packed;
}

thread_local std::string last_error;

// Run a function of the C interface; failures are recorded and become null or `failed`.
template <class F>
auto guarded(F function, decltype(function()) failed = {}) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "unknown failure";
  }
  return failed;
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
      weights.add(tensors[i].name, tensors[i].data, tensors[i].shape, tensors[i].rank,
                  tensors[i].scales);
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
                              std::int32_t threads, const Cancellation* cancellation) {
  return guarded([&]() -> regard_results* {
    check_options(*options);
    std::vector<Task> tasks = make_tasks(engine->model(), ids, ends, limits, sources, *options);
    for (Task& task : tasks) {
      if (options->sample) task.seeds = seeds + task.index * static_cast<std::size_t>(options->n_best);
    }
    Results results(static_cast<std::size_t>(sources));
    decode_all(engine->model(), engine->workspaces(), *options, std::move(tasks),
               std::clamp(threads, 1, kMostThreads), cancellation, results);
    return pack_results(results).release();
  });
}

void regard_free_results(regard_results* results) { delete static_cast<OwnedResults*>(results); }

Cancellation* regard_cancellation_create() {
  return guarded([] { return std::make_unique<Cancellation>().release(); });
}

void regard_cancel(Cancellation* cancellation) { cancellation->requested.store(true); }

void regard_cancellation_destroy(Cancellation* cancellation) { delete cancellation; }

regard_results* regard_score(Engine* engine, const std::int32_t* ids, const std::int64_t* ends,
                             const std::int32_t* targets, const std::int64_t* target_ends,
                             std::int64_t sources, const DecodingOptions* options,
                             std::int32_t align, std::int32_t threads,
                             const Cancellation* cancellation) {
  return guarded([&]() -> regard_results* {
    check_options(*options);
    const Model& model = engine->model();
    if (align && !model.has_cross_attention()) {
      throw Error("this model has no cross-attention to align with (model.attention = none)");
    }
    std::vector<Task> tasks =
        make_forced_tasks(model, ids, ends, targets, target_ends, sources, *options, align != 0);
    Results results(static_cast<std::size_t>(sources));
    decode_all(model, engine->workspaces(), *options, std::move(tasks),
               std::clamp(threads, 1, kMostThreads), cancellation, results);
    return pack_results(results).release();
  });
}

Stream* regard_stream_open(Engine* engine, const std::int32_t* ids, std::int64_t length,
                           std::int32_t limit, const DecodingOptions* options) {
  return guarded([&] {
    check_options(*options);
    if (options->sample) throw Error("samples are not streamed; use greedy or beam search");
    const std::vector<Task> tasks = make_tasks(engine->model(), ids, &length, &limit, 1, *options);
    return std::make_unique<Stream>(*engine, *options, tasks[0]).release();
  });
}

std::int32_t regard_stream_step(Stream* stream, const std::int32_t** prefix, std::int32_t* count) {
  return guarded(
      [&]() -> std::int32_t {
        const bool more = stream->step();
        *prefix = stream->prefix().data();
        *count = static_cast<std::int32_t>(stream->prefix().size());
        return more ? 1 : 0;
      },
      -1);
}

regard_results* regard_stream_results(Stream* stream) {
  return guarded([&]() -> regard_results* { return pack_results(stream->results()).release(); });
}

void regard_stream_close(Stream* stream) { delete stream; }
