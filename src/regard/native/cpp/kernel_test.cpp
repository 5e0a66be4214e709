// Self-test of the kernels: every table that this CPU can run against simple loops, for many
// shapes. float32 is compared with double precision, int8 with exact integers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels.h"
#include "linear.h"

namespace regard {
namespace {

// Reproducible numbers in [−1, 1).
class Numbers {
 public:
  float next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<float>(static_cast<std::int32_t>(state_ >> 33) - (1 << 30)) * 0x1p-30f;
  }

  std::vector<float> many(std::size_t count, float scale = 1.0f) {
    std::vector<float> values(count);
    for (float& value : values) value = scale * next();
    return values;
  }

 private:
  std::uint64_t state_ = 42;
};

class Test {
 public:
  Test(const Kernels& kernels, std::string& report) : k_(kernels), report_(report) {}

  int run() {
    for (int inputs : {1, 3, 4, 7, 16, 33, 64, 130}) {
      for (int outputs : {1, 5, 12, 16, 31, 33, 48, 97}) {
        for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 25, 97, 200}) {
          for (bool int8 : {false, true}) check_product(inputs, outputs, rows, int8);
        }
      }
    }
    check_product(2048, 40, 97, false);
    check_product(2048, 40, 97, true);
    // Rows that are a multiple of 4 kB apart: three values lie between them.
    check_product(2045, 40, 97, false);
    check_product(1021, 70, 25, false);
    check_functions();
    for (int dim : {1, 2, 4, 6, 8, 16, 20, 64}) {
      for (int count : {1, 2, 3, 4, 5, 15, 16, 17, 33}) check_attention(dim, count);
    }
    for (int width : {1, 3, 4, 8, 17, 32, 100}) check_norm(width);
    return failures_;
  }

 private:
  void expect(bool good, const std::string& what) {
    if (good) return;
    ++failures_;
    report_ += std::string(k_.name) + ": " + what + "\n";
  }

  static bool near(double a, double b, double tolerance) {
    return std::fabs(a - b) <= tolerance * (1.0 + std::fabs(b));
  }

  void check_product(int inputs, int outputs, int rows, bool int8) {
    const std::size_t k = static_cast<std::size_t>(inputs), n = static_cast<std::size_t>(outputs);
    const std::size_t m = static_cast<std::size_t>(rows);
    const std::vector<float> w = numbers_.many(n * k), b = numbers_.many(n);
    const std::vector<float> x = numbers_.many(m * (k + 3)), before = numbers_.many(m * (n + 2));
    const int half = outputs / 2;
    std::vector<LinearPart> parts;
    const float* second = w.data() + k * static_cast<std::size_t>(half);
    if (half > 0) parts.push_back({{w.data(), nullptr, nullptr}, b.data(), half});
    parts.push_back({{second, nullptr, nullptr}, b.data() + half, outputs - half});
    const Linear linear(k_, parts, inputs, int8);
    Workspace workspace;
    const std::string name = (int8 ? "int8 product " : "float32 product ") +
                             std::to_string(rows) + " x " + std::to_string(inputs) + " x " +
                             std::to_string(outputs);
    for (bool add : {false, true}) {
      std::vector<float> y = before, alone = before;
      linear.apply(x.data(), k + 3, rows, y.data(), n + 2, workspace, add);
      bool good = true, same = true;
      for (std::size_t r = 0; r < m; ++r) {
        // A row must not depend on the other rows.
        linear.apply(x.data() + r * (k + 3), k + 3, 1, alone.data() + r * (n + 2), n + 2,
                     workspace, add);
        for (std::size_t c = 0; c < n + 2; ++c) {
          const std::size_t at = r * (n + 2) + c;
          same = same && y[at] == alone[at];
          double expected = before[at];
          if (c < n) {
            const double product = int8 ? quantised_product(&x[r * (k + 3)], &w[c * k], inputs)
                                        : exact_product(&x[r * (k + 3)], &w[c * k], inputs);
            expected = product + b[c] + (add ? static_cast<double>(before[at]) : 0.0);
          }
          const double rounding = int8 ? 2e-6 : 2e-6 * std::sqrt(static_cast<double>(inputs));
          good = good && near(y[at], expected, 4e-6 + rounding);
        }
      }
      expect(good, name + " is wrong");
      expect(same, name + " depends on the number of rows");
    }
  }

  static double exact_product(const float* x, const float* w, int count) {
    double total = 0.0;
    for (int i = 0; i < count; ++i) total += static_cast<double>(x[i]) * w[i];
    return total;
  }

  static double quantised_product(const float* x, const float* w, int count) {
    float most_x = 0.0f, most_w = 0.0f;
    for (int i = 0; i < count; ++i) {
      most_x = std::max(most_x, std::fabs(x[i]));
      most_w = std::max(most_w, std::fabs(w[i]));
    }
    if (most_x == 0.0f || most_w == 0.0f) return 0.0;
    long total = 0;
    for (int i = 0; i < count; ++i) {
      total += std::lrintf(x[i] * (127.0f / most_x)) * std::lrintf(w[i] / (most_w / 127.0f));
    }
    return static_cast<double>(total) * (most_x / 127.0f) * (most_w / 127.0f);
  }

  static double exact_gelu_tanh(double v) {
    return v / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
  }

  void check_functions() {
    for (std::size_t count : {1, 4, 7, 16, 33, 500}) {
      const std::vector<float> x = numbers_.many(count, 12.0f);
      const auto check = [&](const char* name, void (*function)(float*, std::size_t),
                             double (*exact)(double)) {
        std::vector<float> y = x;
        function(y.data(), count);
        bool good = true;
        for (std::size_t i = 0; i < count; ++i) good = good && near(y[i], exact(x[i]), 2e-6);
        expect(good, std::string(name) + " is wrong");
      };
      check("relu", k_.relu, [](double v) { return v > 0 ? v : 0.0; });
      check("gelu", k_.gelu, [](double v) { return v * std::erfc(-v / std::sqrt(2.0)) / 2; });
      check("gelu_tanh", k_.gelu_tanh, exact_gelu_tanh);
      check("silu", k_.silu, [](double v) { return v / (1 + std::exp(-v)); });
      check("sigmoid", k_.sigmoid, [](double v) { return 1 / (1 + std::exp(-v)); });
      check("tanh", k_.tanh, [](double v) { return std::tanh(v); });
      std::vector<float> halves = numbers_.many(2 * count, 5.0f);
      const std::vector<float> given = halves;
      std::vector<float> others = given;
      k_.swiglu(halves.data(), static_cast<int>(count));
      k_.geglu(others.data(), static_cast<int>(count));
      bool good = true, good_geglu = true;
      double sum = 0.0, top = x[0];
      for (std::size_t i = 0; i < count; ++i) {
        const double a = given[i];
        good = good && near(halves[i], a / (1 + std::exp(-a)) * given[count + i], 2e-6);
        good_geglu =
            good_geglu && near(others[i], exact_gelu_tanh(a) * given[count + i], 2e-6);
        top = std::max(top, static_cast<double>(x[i]));
      }
      expect(good, "swiglu is wrong");
      expect(good_geglu, "geglu is wrong");
      for (float value : x) sum += std::exp(value - top);
      float maximum, log_sum;
      k_.log_sum_exp(x.data(), static_cast<int>(count), &maximum, &log_sum);
      expect(maximum == static_cast<float>(top) && near(log_sum, std::log(sum), 2e-6),
             "log_sum_exp is wrong");
      check_scores(count);
    }
  }

  void check_scores(std::size_t count) {
    const std::vector<float> a = numbers_.many(count), b = numbers_.many(count);
    const std::vector<float> v = numbers_.many(count);
    double dot = 0.0, score = 0.0;
    std::vector<float> sum = a;
    k_.add_scaled(sum.data(), b.data(), 0.5f, static_cast<int>(count));
    bool good = true;
    for (std::size_t i = 0; i < count; ++i) {
      dot += static_cast<double>(a[i]) * b[i];
      score += v[i] * std::tanh(static_cast<double>(a[i]) + b[i]);
      good = good && near(sum[i], a[i] + 0.5 * b[i], 1e-6);
    }
    const int size = static_cast<int>(count);
    expect(good, "add_scaled is wrong");
    expect(near(k_.dot(a.data(), b.data(), size), dot, 1e-5), "dot is wrong");
    expect(near(k_.additive_score(v.data(), a.data(), b.data(), size), score, 1e-5),
           "additive_score is wrong");
  }

  void check_attention(int dim, int count) {
    const std::size_t d = static_cast<std::size_t>(dim), n = static_cast<std::size_t>(count);
    const std::vector<float> query = numbers_.many(d, 3.0f), pairs = numbers_.many(n * 2 * d);
    const std::vector<float> bias = numbers_.many(n);
    std::vector<const float*> rows;
    for (std::size_t t = 0; t < n; ++t) rows.push_back(&pairs[(n - 1 - t) * 2 * d]);
    std::vector<float> weights(n + kVectorPadding), context(d);
    for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
      k_.attend({query.data(), rows.data(), 0, d, count, dim, 0.7f, added, weights.data(),
                 context.data()});
      std::vector<double> exact(n);
      double total = 0.0;
      for (std::size_t t = 0; t < n; ++t) {
        double score = 0.0;
        for (std::size_t i = 0; i < d; ++i) score += static_cast<double>(query[i]) * rows[t][i];
        exact[t] = std::exp(0.7 * score + (added == nullptr ? 0.0 : added[t]));
        total += exact[t];
      }
      bool good = true;
      for (std::size_t i = 0; i < d; ++i) {
        double value = 0.0;
        for (std::size_t t = 0; t < n; ++t) value += exact[t] / total * rows[t][d + i];
        good = good && near(context[i], value, 1e-5);
      }
      for (std::size_t t = 0; t < n; ++t) good = good && near(weights[t], exact[t] / total, 1e-5);
      expect(good, "attention of " + std::to_string(count) + " keys is wrong");
    }
  }

  void check_norm(int width) {
    const std::size_t n = static_cast<std::size_t>(width);
    const std::vector<float> x = numbers_.many(2 * n, 4.0f), gamma = numbers_.many(n);
    const std::vector<float> beta = numbers_.many(n);
    for (const float* shift : {static_cast<const float*>(nullptr), beta.data()}) {
      std::vector<float> y(2 * n);
      k_.norm(x.data(), y.data(), 2, width, gamma.data(), shift, 1e-5f);
      bool good = true;
      for (std::size_t r = 0; r < 2; ++r) {
        double mean = 0.0, variance = 0.0;
        for (std::size_t i = 0; shift != nullptr && i < n; ++i) mean += x[r * n + i] / width;
        for (std::size_t i = 0; i < n; ++i) variance += std::pow(x[r * n + i] - mean, 2) / width;
        for (std::size_t i = 0; i < n; ++i) {
          const double unit = (x[r * n + i] - mean) / std::sqrt(variance + 1e-5);
          const double expected = unit * gamma[i] + (shift == nullptr ? 0.0 : shift[i]);
          good = good && near(y[r * n + i], expected, 2e-5);
        }
      }
      expect(good, "norm of width " + std::to_string(width) + " is wrong");
    }
  }

  const Kernels& k_;
  std::string& report_;
  Numbers numbers_;
  int failures_ = 0;
};

}  // namespace

int test_kernels(char* report, std::size_t size) {
  std::string text;
  int failures = 0;
  for (int i = 0; kernel_name(i) != nullptr; ++i) {
    const Kernels& kernels = *find_kernels(kernel_name(i));
    const int found = Test(kernels, text).run();
    failures += found;
    if (found == 0) text += std::string(kernels.name) + ": ok\n";
  }
  if (size > 0) std::snprintf(report, size, "%s", text.c_str());
  return failures;
}

}  // namespace regard
