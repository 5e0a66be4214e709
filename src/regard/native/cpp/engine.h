// The plain C interface of the engine. Functions return null or a negative number on failure;
// regard_error() then describes the last failure of the calling thread.
#pragma once

#include <cstdint>

#if defined(_WIN32)
#define REGARD_EXPORT extern "C" __declspec(dllexport)
#else
#define REGARD_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace regard {
struct ModelSettings;
struct DecodingOptions;
struct Cancellation;
class Engine;
class Stream;
}  // namespace regard

// A named tensor of at most two axes: float32, or an int8 matrix with a scale per row. The caller
// keeps names until regard_create returns, and data and scales until regard_destroy.
struct regard_tensor {
  const char* name;
  const void* data;
  std::int64_t shape[2];
  std::int32_t rank;
  const float* scales;  // null: the data are float32
};

// All hypotheses of all sources, in order. Arrays are valid until regard_free_results.
struct regard_results {
  std::int64_t sources;
  std::int64_t hypotheses;
  const std::int32_t* counts;   // hypotheses of each source
  const std::int32_t* lengths;  // ids of each hypothesis; it has one more log-probability
  const double* scores;         // score of each hypothesis
  const std::int32_t* ids;
  const float* logps;
  const float* alignments;  // of regard_score: [id or END][source token] of each hypothesis
};

REGARD_EXPORT const char* regard_error();

// Identifies the sources that the library was compiled from.
REGARD_EXPORT const char* regard_source_digest();

// Name of the i-th kernel table that this CPU can run, fastest first; null beyond the last.
REGARD_EXPORT const char* regard_kernel_name(std::int32_t index);

// Test all kernels; returns the number of failures and writes a report.
REGARD_EXPORT std::int32_t regard_test_kernels(char* report, std::int64_t size);

// `kernels` is the name of a kernel table; empty: the fastest one.
REGARD_EXPORT regard::Engine* regard_create(const regard::ModelSettings* settings,
                                            const regard_tensor* tensors, std::int64_t count,
                                            const double* frequencies, std::int64_t frequency_count,
                                            const char* kernels);

REGARD_EXPORT void regard_destroy(regard::Engine* engine);

// Search all sources with at most `threads` threads. Source i has the ids up to ends[i] (special
// tokens included) and the output limit limits[i]. With sampling, seeds has n_best values per source.
// Several threads may search with one engine at the same time. A request of `cancellation`, if not
// null, makes the call fail within milliseconds.
REGARD_EXPORT regard_results* regard_search(regard::Engine* engine, const std::int32_t* ids,
                                            const std::int64_t* ends, const std::int32_t* limits,
                                            const std::int64_t* seeds, std::int64_t sources,
                                            const regard::DecodingOptions* options,
                                            std::int32_t threads,
                                            const regard::Cancellation* cancellation);

// Teacher forcing: the log-probabilities of given targets, which have the ids up to target_ends[i],
// after the start tokens of the options, and, if `align`, the mean cross-attention of each step over layers and heads.
REGARD_EXPORT regard_results* regard_score(regard::Engine* engine, const std::int32_t* ids,
                                           const std::int64_t* ends, const std::int32_t* targets,
                                           const std::int64_t* target_ends, std::int64_t sources,
                                           const regard::DecodingOptions* options,
                                           std::int32_t align, std::int32_t threads,
                                           const regard::Cancellation* cancellation);

REGARD_EXPORT void regard_free_results(regard_results* results);

// A request to stop searches. Any thread may make it; it must outlive the searches that it is given
// to.
REGARD_EXPORT regard::Cancellation* regard_cancellation_create();
REGARD_EXPORT void regard_cancel(regard::Cancellation* cancellation);
REGARD_EXPORT void regard_cancellation_destroy(regard::Cancellation* cancellation);

// Search one source step by step, without sampling. A stream must be closed before its engine is
// destroyed.
REGARD_EXPORT regard::Stream* regard_stream_open(regard::Engine* engine, const std::int32_t* ids,
                                                 std::int64_t length, std::int32_t limit,
                                                 const regard::DecodingOptions* options);

// Take one step; returns 1 if more follow, 0 after the last one, −1 on failure. `prefix` receives
// the ids that all hypotheses share, valid until the next call.
REGARD_EXPORT std::int32_t regard_stream_step(regard::Stream* stream, const std::int32_t** prefix,
                                              std::int32_t* count);

// The hypotheses, after the last step.
REGARD_EXPORT regard_results* regard_stream_results(regard::Stream* stream);

REGARD_EXPORT void regard_stream_close(regard::Stream* stream);
