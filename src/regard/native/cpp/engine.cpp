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

class Engine {
 public:
  explicit Engine(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  const Model& model() const { return *model_; }

  WorkspacePool& workspaces() { return workspaces_; }

 private:
  std::unique_ptr<Model> model_;
  WorkspacePool workspaces_;
};

namespace {

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
    decode_all(engine->model(), engine->workspaces(), *options, std::move(tasks),
               std::clamp(threads, 1, kMostThreads), results);
    return pack_results(results).release();
  });
}

void regard_free_results(regard_results* results) { delete static_cast<OwnedResults*>(results); }
