// Runs the engine on tiny random models and on damaged requests, for a build with
// AddressSanitizer and UndefinedBehaviorSanitizer. Prints the number of searches and refusals.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine.h"
#include "search.h"

namespace {

using regard::DecodingOptions;
using regard::ModelSettings;

std::uint64_t state = 1;

std::uint32_t draw(std::uint32_t below) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<std::uint32_t>(state >> 33) % below;
}

// All tensors of a model, with exactly the memory they need, so that every overrun is noticed.
class Tensors {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape) {
    std::size_t size = 1;
    for (std::int64_t axis : shape) size *= static_cast<std::size_t>(axis);
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(draw(2001)) / 1000.0f - 1.0f;
    names_.push_back(name);
    shapes_.push_back(shape);
    values_.push_back(std::move(values));
  }

  void linear(const std::string& name, int outputs, int inputs, bool bias = true) {
    add(name + ".weight", {outputs, inputs});
    if (bias) add(name + ".bias", {outputs});
  }

  std::vector<regard_tensor> structs() const {
    std::vector<regard_tensor> found;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      regard_tensor tensor{names_[i].c_str(), values_[i].data(), {1, 1},
                           static_cast<std::int32_t>(shapes_[i].size()), nullptr};
      std::copy(shapes_[i].begin(), shapes_[i].end(), tensor.shape);
      found.push_back(tensor);
    }
    return found;
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<std::vector<float>> values_;
};

Tensors transformer_tensors(const ModelSettings& s) {
  Tensors t;
  const int kv = s.dim * s.kv_heads, wide = s.dim * s.heads;
  const bool gated = s.activation == 2 || s.activation == 5, biases = s.biases != 0;
  t.add("source.table", {s.source_vocabulary, s.width});
  if (s.tied < 2) t.add("target.table", {s.target_vocabulary, s.width});
  if (s.tied == 0 || s.tied == 3) t.add("output.table", {s.target_vocabulary, s.width});
  if (s.output_bias) t.add("output.bias", {s.target_vocabulary});
  for (const std::string side : {"encoder", "decoder"}) {
    const bool decoder = side == "decoder";
    const auto norm = [&](const std::string& name) {
      t.add(name + ".weight", {s.width});
      if (!s.rms_norm) t.add(name + ".bias", {s.width});
    };
    if (s.pre_norm) norm(side + "_norm");
    if (s.embedding_norm) norm(decoder ? "target.norm" : "source.norm");
    if (s.position == 3) {
      t.add((decoder ? "target" : "source") + std::string(".position.table"),
            {s.position_limit, s.width});
    }
    const std::string bias = "native." + side + "_bias";
    if (s.position == 5) t.add(bias, {s.heads});
    if (s.position == 6) t.add(bias, {s.heads, 2 * s.position_limit + 1});
    if (s.position == 7) t.add(bias, {2 * s.position_limit + 1, s.dim});
    for (int i = 0; i < (decoder ? s.decoder_layers : s.encoder_layers); ++i) {
      const std::string layer = side + "." + std::to_string(i);
      for (const std::string kind : {"self", "cross"}) {
        if (kind == "cross" && !decoder) continue;
        const std::string attention = layer + "." + kind + "_attention.";
        t.linear(attention + "queries", wide, s.width, biases);
        t.linear(attention + "keys", kv, s.width, biases);
        t.linear(attention + "values", kv, s.width, biases);
        t.linear(attention + "out", s.width, wide, biases);
      }
      t.linear(layer + ".feed_forward.inner", s.ffn_width * (gated ? 2 : 1), s.width, biases);
      t.linear(layer + ".feed_forward.outer", s.width, s.ffn_width, biases);
      for (int n = 1; n <= (decoder ? 3 : 2); ++n) {
        norm(layer + ".residual" + std::to_string(n) + ".norm");
      }
    }
  }
  return t;
}

Tensors recurrent_tensors(const ModelSettings& s) {
  Tensors t;
  const int width = s.width, gates = s.cell == 1 ? 4 : 3;
  t.add("source.table", {s.source_vocabulary, width});
  t.add("target.table", {s.target_vocabulary, width});
  const auto cell = [&](const std::string& name, const std::string& suffix, int inputs, int size) {
    t.add(name + ".weight_ih_l" + suffix, {gates * size, inputs});
    t.add(name + ".weight_hh_l" + suffix, {gates * size, size});
    t.add(name + ".bias_ih_l" + suffix, {gates * size});
    t.add(name + ".bias_hh_l" + suffix, {gates * size});
  };
  for (int i = 0; i < s.encoder_layers; ++i) {
    cell("encoder", std::to_string(i), width, width / 2);
    cell("encoder", std::to_string(i) + "_reverse", width, width / 2);
  }
  for (int i = 0; i < s.decoder_layers; ++i) {
    const int inputs = i == 0 && s.attention != 2 ? 2 * width : width;
    cell("decoder", std::to_string(i), inputs, width);
  }
  t.linear("initial", s.decoder_layers * width, width);
  t.linear("readout", width, 2 * width);
  if (s.attention != 0 && s.score == 1) {
    t.add("attention.queries.weight", {width, width});
    t.linear("attention.keys", width, width);
    t.add("attention.attention.score.v", {width});
  } else if (s.attention != 0 && s.score == 2) {
    t.add("attention.attention.score.weight", {width, width});
  }
  return t;
}

ModelSettings random_settings() {
  ModelSettings s{};
  s.family = static_cast<int>(draw(4) == 0);
  s.heads = 1 + static_cast<int>(draw(3));
  s.kv_heads = draw(2) ? s.heads : 1;
  s.dim = 2 * (1 + static_cast<int>(draw(9)));
  s.width = draw(2) ? s.heads * s.dim : 2 * (1 + static_cast<int>(draw(12)));
  s.encoder_layers = 1 + static_cast<int>(draw(2));
  s.decoder_layers = 1 + static_cast<int>(draw(2));
  s.ffn_width = 1 + static_cast<int>(draw(40));
  s.position = static_cast<int>(draw(8));
  s.position_limit = s.position == 3 ? 64 : 1 + static_cast<int>(draw(5));
  s.rotated_dims = draw(2) ? s.dim : 2;
  s.neighbours = static_cast<int>(draw(2));
  s.window = static_cast<int>(draw(5));
  s.rms_norm = static_cast<int>(draw(2));
  s.pre_norm = static_cast<int>(draw(2));
  s.activation = static_cast<int>(draw(6));
  s.biases = static_cast<int>(draw(2));
  s.embedding_norm = static_cast<int>(draw(2));
  s.output_bias = static_cast<int>(draw(2));
  s.tied = s.family == 0 ? static_cast<int>(draw(4)) : 1;
  s.source_vocabulary = 5 + static_cast<int>(draw(9));
  s.target_vocabulary = s.tied >= 2 ? s.source_vocabulary : 5 + static_cast<int>(draw(40));
  s.cell = static_cast<int>(draw(2));
  s.attention = static_cast<int>(draw(3));
  s.score = static_cast<int>(draw(3));
  s.int8 = static_cast<int>(draw(2));
  s.score_scale = 0.5f;
  s.norm_eps = draw(2) ? 1e-5f : 0.1f;
  s.embedding_scale = draw(2) ? 1.0f : 3.0f;
  return s;
}

std::vector<double> frequencies(const ModelSettings& s) {
  int count = 0;
  if (s.family == 0 && (s.position == 1 || s.position == 2)) count = (s.width + 1) / 2;
  if (s.family == 0 && s.position == 4) count = s.rotated_dims / 2;
  return std::vector<double>(static_cast<std::size_t>(count), 0.3);
}

// Step through the search of one source, sometimes not to its end.
bool stream(regard::Engine* engine, const std::int32_t* ids, std::int64_t length, int limit,
            const DecodingOptions& options) {
  regard::Stream* stream = regard_stream_open(engine, ids, length, limit, &options);
  if (stream == nullptr) return options.sample != 0;
  int more = 1;
  const std::int32_t* prefix;
  std::int32_t count;
  while (more == 1 && draw(20) != 0) more = regard_stream_step(stream, &prefix, &count);
  if (more == 0) regard_free_results(regard_stream_results(stream));
  regard_stream_close(stream);
  return more >= 0;
}

// Compute the log-probabilities and alignments of the first hypothesis of each source.
void score(regard::Engine* engine, const std::vector<std::int32_t>& ids,
           const std::vector<std::int64_t>& ends, const DecodingOptions& options,
           const regard_results& found) {
  std::vector<std::int32_t> targets;
  std::vector<std::int64_t> target_ends;
  std::int64_t hypothesis = 0, at = 0;
  for (std::int64_t i = 0; i < found.sources; ++i) {
    for (int k = 0; k < found.counts[i]; ++k, ++hypothesis) {
      const std::int32_t* own = found.ids + at;
      if (k == 0) targets.insert(targets.end(), own, own + found.lengths[hypothesis]);
      at += found.lengths[hypothesis];
    }
    target_ends.push_back(static_cast<std::int64_t>(targets.size()));
  }
  regard_results* scored =
      regard_score(engine, ids.data(), ends.data(), targets.data(), target_ends.data(),
                   found.sources, &options, static_cast<int>(draw(2)),
                   1 + static_cast<int>(draw(3)), nullptr);
  if (scored != nullptr) regard_free_results(scored);
}

bool search(regard::Engine* engine, const ModelSettings& s, bool damaged) {
  std::vector<std::int32_t> ids, limits;
  std::vector<std::int64_t> ends, seeds;
  const int sources = static_cast<int>(draw(9));
  for (int i = 0; i < sources; ++i) {
    const int length = 1 + static_cast<int>(draw(20));
    for (int t = 0; t < length; ++t) {
      ids.push_back(static_cast<int>(draw(static_cast<std::uint32_t>(s.source_vocabulary))));
    }
    ends.push_back(static_cast<std::int64_t>(ids.size()));
    limits.push_back(static_cast<int>(draw(24)));
    for (int k = 0; k < 8; ++k) seeds.push_back(static_cast<std::int64_t>(draw(1u << 30)));
  }
  std::vector<std::int32_t> words = {1, 0, 3, 4, 3, 4, 4};
  std::vector<std::int32_t> word_ends = {1, 2, 3, 5, 6, 7};
  DecodingOptions o{};
  o.end = 2;
  if (draw(2)) {  // two start tokens, and none that is never generated
    word_ends.erase(word_ends.begin());
  } else {
    o.never_count = 1;
  }
  o.beam = 1 + static_cast<int>(draw(6));
  o.sample = static_cast<int>(draw(4) == 0);
  o.n_best = o.sample ? 1 + static_cast<int>(draw(8)) : 1 + static_cast<int>(draw(static_cast<std::uint32_t>(o.beam)));
  o.max_length = draw(3) ? -1 : static_cast<int>(draw(12));
  o.min_length = static_cast<int>(draw(3));
  o.no_repeat_ngram = static_cast<int>(draw(3));
  o.top_k = static_cast<int>(draw(4));
  o.length_alpha = 0.5 * draw(3);
  o.repetition_penalty = draw(2) ? 1.0 : 1.3;
  o.temperature = 0.7;
  o.top_p = draw(2) ? 1.0 : 0.8;
  o.min_p = draw(2) ? 0.0 : 0.1;
  o.ids = words.data();
  o.ends = word_ends.data();
  o.prefix_count = static_cast<int>(draw(2));
  o.ban_count = static_cast<int>(draw(2));
  o.required_count = o.prefix_count + o.ban_count < 2 ? static_cast<int>(draw(2)) : 0;
  if (damaged && !ids.empty()) {
    switch (draw(4)) {
      case 0: ids[draw(static_cast<std::uint32_t>(ids.size()))] = s.source_vocabulary; break;
      case 1: limits[0] = -1; break;
      case 2:
        o.beam = 0;
        break;
      default: words[draw(7)] = -7; break;
    }
  }
  if (sources > 0 && !stream(engine, ids.data(), ends[0], limits[0], o)) return false;
  regard::Cancellation* cancellation = draw(2) ? regard_cancellation_create() : nullptr;
  std::thread canceller;
  if (cancellation != nullptr && draw(4) == 0) {
    const auto wait = std::chrono::microseconds(draw(200));
    canceller = std::thread([=] {
      std::this_thread::sleep_for(wait);
      regard_cancel(cancellation);
    });
  }
  regard_results* results =
      regard_search(engine, ids.data(), ends.data(), limits.data(), seeds.data(),
                    static_cast<std::int64_t>(sources), &o, 1 + static_cast<int>(draw(3)),
                    cancellation);
  if (canceller.joinable()) canceller.join();
  if (cancellation != nullptr) regard_cancellation_destroy(cancellation);
  if (results == nullptr) return false;
  score(engine, ids, ends, o, *results);
  double total = 0.0;
  std::int64_t at = 0;
  for (std::int64_t h = 0; h < results->hypotheses; ++h) {
    for (int t = 0; t < results->lengths[h]; ++t, ++at) total += results->ids[at];
    total += results->scores[h];
  }
  regard_free_results(results);
  return !std::isnan(total);
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 100;
  int found = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    ModelSettings s = random_settings();
    const Tensors tensors = s.family == 0 ? transformer_tensors(s) : recurrent_tensors(s);
    std::vector<regard_tensor> structs = tensors.structs();
    const std::vector<double> all = frequencies(s);
    if (draw(4) == 0) {  // damage one setting or one shape; the engine must notice
      if (draw(2)) {
        std::int32_t* fields = reinterpret_cast<std::int32_t*>(&s);
        fields[draw(22)] = static_cast<std::int32_t>(draw(1u << 31)) - 1000;
      } else {
        structs[draw(static_cast<std::uint32_t>(structs.size()))].shape[0] += 1 + draw(3);
      }
    }
    int kernels = 0;
    while (regard_kernel_name(kernels) != nullptr) ++kernels;
    const char* name = regard_kernel_name(static_cast<int>(draw(static_cast<std::uint32_t>(kernels))));
    regard::Engine* engine =
        regard_create(&s, structs.data(), static_cast<std::int64_t>(structs.size()), all.data(),
                      static_cast<std::int64_t>(all.size()), name);
    if (engine == nullptr) {
      ++refused;
      if (std::strlen(regard_error()) == 0) return 1;
      continue;
    }
    for (int i = 0; i < 3; ++i) ++(search(engine, s, draw(4) == 0) ? found : refused);
    regard_destroy(engine);
  }
  std::printf("searches %d refusals %d\n", found, refused);
  return found > 0 && refused > 0 ? 0 : 1;
}
