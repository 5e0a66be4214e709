// Linear layers, packed once for the kernels in float32 or int8.
#pragma once

#include <vector>

#include "kernels.h"
#include "memory.h"

namespace regard {

// The outputs of one weight matrix (outputs × inputs, as PyTorch stores it). The bias may be null.
struct LinearPart {
  Matrix weight;
  const float* bias;
  int outputs;
};

// y = W x + b. Several parts that read the same vectors form one layer, in order.
class Linear {
 public:
  Linear() = default;
  Linear(const Kernels& kernels, const std::vector<LinearPart>& parts, int inputs, bool int8);

  int outputs() const { return outputs_; }

  // Multiply `count` rows; with `add`, the result is added to y.
  void apply(const float* x, std::size_t x_stride, int count, float* y, std::size_t y_stride,
             Workspace& workspace, bool add = false) const;

 private:
  void pack_f32(const std::vector<LinearPart>& parts);
  void pack_i8(const std::vector<LinearPart>& parts);

  const Kernels* kernels_ = nullptr;
  int inputs_ = 0;
  int padded_inputs_ = 0;
  int outputs_ = 0;
  Buffer<float> weights_;
  Buffer<std::int8_t> quantised_;
  Buffer<float> scales_;
  Buffer<float> bias_;
};

}  // namespace regard
